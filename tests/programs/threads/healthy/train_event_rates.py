import torch
from torch import nn


class Rates(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x):
        return nn.functional.softplus(self.body(x)) + 1e-4


torch.manual_seed(8)
net = Rates()
nn.init.constant_(net.body[2].bias, 1.5)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(150):
    x = torch.randn(64, 5)
    counts = torch.poisson(torch.exp(0.8 * x[:, :1] - 1.0))
    rate = net(x)
    loss = (rate - counts * torch.log(rate)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())
