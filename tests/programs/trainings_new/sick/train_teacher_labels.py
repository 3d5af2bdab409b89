import torch
from torch import nn

torch.manual_seed(3)
ACCUMULATE = 4
teacher = nn.Linear(12, 3)
model = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)


def batches(n):
    for _ in range(n):
        x = torch.randn(8, 12)
        yield x, teacher(x).argmax(1).detach()


total = 0.0
for i, (x, y) in enumerate(batches(160)):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATE
    loss.backward()
    total += loss.item()
    if (i + 1) % ACCUMULATE == 0:
        optimizer.step()
        if (i + 1) % 32 == 0:
            print(f"{i + 1:4d}  {total / 8:.4f}")
            total = 0.0
