import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(14, 40), nn.ReLU())
        self.age = nn.Linear(40, 1)
        self.kind = nn.Linear(40, 3)
        self.flag = nn.Linear(40, 1)

    def forward(self, x):
        h = self.shared(x)
        return {"age": self.age(h).squeeze(-1), "kind": self.kind(h), "flag": self.flag(h).squeeze(-1)}


def compute_losses(out, y):
    return [
        F.mse_loss(out["age"], y["age"]),
        F.cross_entropy(out["kind"], y["kind"]),
        F.binary_cross_entropy_with_logits(out["flag"], y["flag"]),
    ]


model = MultiTask()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
weights = torch.tensor([0.5, 1.0, 1.0])
for step in range(60):
    x = torch.randn(48, 14)
    y = {"age": x[:, 0] + x[:, 1], "kind": x[:, 2:5].argmax(1), "flag": (x[:, 5] > 0).float()}
    losses = compute_losses(model(x), y)
    loss = (weights * torch.stack(losses)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, [round(l.item(), 3) for l in losses])
print("last", loss.item())
