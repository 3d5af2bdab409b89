import torch
from torch import nn

torch.manual_seed(52)
PHASES = [(60, 3e-3), (60, 1e-3), (60, 3)]

encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 6))
decoder = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16))
model = nn.Sequential(encoder, decoder)
optimizer = torch.optim.Adam(model.parameters())
basis = torch.randn(3, 16)
done = 0
for length, rate in PHASES:
    for group in optimizer.param_groups:
        group["lr"] = rate
    for _ in range(length):
        x = torch.randn(48, 3) @ basis
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
    print(done, rate, loss.item())
