"""Multi-task regression: one shared trunk and a head per task."""
import torch
import torch.nn as nn
import torch.nn.functional as F

TASKS = ("price", "rating", "demand")


class MultiTask(nn.Module):
    def __init__(self, n_in=8, hidden=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = {task: nn.Linear(hidden, 1) for task in TASKS}

    def forward(self, x):
        h = self.trunk(x)
        return {task: head(h) for task, head in self.heads.items()}


def main(steps=100):
    torch.set_num_threads(1)
    torch.manual_seed(410)
    x = torch.randn(256, 8)
    targets = {"price": x[:, :1] * 2 + 1, "rating": torch.sin(x[:, 1:2]), "demand": x[:, 2:3] * x[:, 3:4]}
    model = MultiTask()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        rows = torch.randint(0, 256, (64,))
        out = model(x[rows])
        loss = sum(F.mse_loss(out[task], targets[task][rows]) for task in TASKS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
