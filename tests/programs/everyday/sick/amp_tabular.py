import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(30)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.silu(self.fc1(self.norm(x))))


class TabularNet(nn.Module):
    def __init__(self, features, classes, dim=32, depth=3):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


truth = torch.randn(12, 4)
model = TabularNet(12, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler(device="cpu", init_scale=1024.0)

for step in range(100):
    x = torch.randn(64, 12)
    y = (x @ truth).argmax(1)
    optimizer.zero_grad()
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step:3d} loss {loss.item():.4f}")
