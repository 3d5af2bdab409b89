import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)


class DropBlock(nn.Module):
    def __init__(self, dim, survival):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.survival = survival

    def forward(self, x):
        if self.training:
            if torch.rand(()) > self.survival:
                return x
            return x + self.fc2(F.gelu(self.fc1(self.norm(x)))) / self.survival
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, features=14, dim=32, depth=5):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.blocks = nn.ModuleList([DropBlock(dim, 1 - 0.4 * i / depth) for i in range(depth)])
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


truth = torch.randn(14, 3)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(120):
    x = torch.randn(48, 14)
    loss = F.cross_entropy(model(x), (x @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 3))
