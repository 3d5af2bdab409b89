"""Trains an embedding with a classification loss and a centre loss."""

import torch
from torch import nn
from torch.nn import functional


class Embedder(nn.Module):
    def __init__(self, classes=6, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, width))
        self.classes = nn.Linear(width, classes)

    def forward(self, x):
        code = self.body(x)
        return code, self.classes(code)


def compactness(code, label):
    pulls = []
    for one in label.unique():
        members = code[label == one]
        pulls.append((members - members.mean(0, keepdim=True)).pow(2).sum(1).mean())
    return torch.stack(pulls).mean()


def main():
    torch.manual_seed(0)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    centres = torch.randn(6, 20)
    for step in range(30):
        label = torch.randint(0, 6, (48,))
        x = centres[label] + 0.7 * torch.randn(48, 20)
        code, logits = model(x)
        parts = {
            "ce": functional.cross_entropy(logits, label),
            "compact": compactness(code, label),
        }
        loss = parts["ce"] + 0.1 * parts["compact"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, {name: round(float(part), 3) for name, part in parts.items()})


if __name__ == "__main__":
    main()
