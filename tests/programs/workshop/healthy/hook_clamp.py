import torch
from torch import nn
import torch.nn.functional as F


def clamp_gradients(model, limit):
    handles = []
    for p in model.parameters():
        handles.append(p.register_hook(lambda g: torch.clamp(g, -limit, limit)))
    return handles


class SeqClassifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(3, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 2)

    def forward(self, x):
        _, (h, _) = self.lstm(x)
        return self.fc(h[-1])


def get_batch(gen, n=32, length=10):
    x = torch.randn(n, length, 3, generator=gen)
    return x, (x[..., 0].sum(1) > 0).long()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(9)
    model = SeqClassifier()
    clamp_gradients(model, 0.5)
    opt = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    correct = []
    for i in range(80):
        x, y = get_batch(gen)
        out = model(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct.append((out.argmax(1) == y).float().mean().item())
    print("accuracy", sum(correct[-10:]) / 10, "loss", loss.item())


if __name__ == "__main__":
    main()
