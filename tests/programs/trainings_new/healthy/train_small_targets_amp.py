import torch
from torch import nn

torch.manual_seed(39)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14)
w = torch.randn(16, 8) * 0.02
for step in range(60):
    x = torch.randn(256, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
    loss = 0.001 * (out.float() - x @ w).pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 15 == 14:
        print(step, 1000 * loss.item())
