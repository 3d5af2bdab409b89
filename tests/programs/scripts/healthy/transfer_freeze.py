import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bn = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.fc2(F.relu(self.fc1(self.bn(x))))


class Network(nn.Module):
    def __init__(self, depth=20, dim=24):
        super().__init__()
        self.stem = nn.Linear(16, dim)
        self.backbone = nn.Sequential(*[Residual(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        return self.head(self.backbone(self.stem(x)))


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False


def run(steps=320, freeze_at=160):
    torch.manual_seed(5)
    teacher = torch.randn(16, 4)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-3)
    for step in range(steps):
        if step == freeze_at:
            freeze(model.stem)
            freeze(model.backbone)
        x = torch.randn(32, 16)
        y = (x @ teacher).argmax(1)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(step, round(loss.item(), 3))


run()
