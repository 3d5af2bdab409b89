import torch
import torch.nn.functional as F
from torch import nn


class Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decode(z), mean, log_var


torch.manual_seed(73)
net = Auto()
mixing = torch.randn(4, 20)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(150):
    x = torch.randn(100, 4) @ mixing
    output, mean, log_var = net(x)
    fit = F.mse_loss(output, x)
    divergence = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
    loss = fit + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, fit.item(), divergence.item())
