import torch
from torch import nn

torch.manual_seed(14)
features = torch.randn(256, 12) * torch.logspace(-1, 1, 12)
target = (features @ torch.randn(12, 1)) / 10
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for epoch in range(20):
    for i in range(0, 256, 32):
        prediction = model(features[i:i + 32])
        loss = nn.functional.mse_loss(prediction, target[i:i + 32])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1e-4)
        optimizer.step()
    if epoch % 5 == 4:
        print(epoch, loss.item())
