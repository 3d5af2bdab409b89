import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
x = torch.randn(160, 6)
y = torch.stack([x[:, 0] * x[:, 1], x[:, 2] ** 2], dim=1)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
accum = 4

for epoch in range(12):
    mean = 0.0
    for step, (a, b) in enumerate(loader, start=1):
        loss = nn.functional.mse_loss(model(a), b)
        mean += loss.item() / len(loader)
        (loss / accum).backward()
        if step % accum == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(f"[{epoch}] {mean:.4f}")
