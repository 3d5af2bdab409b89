import torch
from torch import nn

torch.manual_seed(66)
x = torch.linspace(-2, 2, 80).unsqueeze(1)
y = torch.sin(2 * x)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
for epoch in range(10):
    def closure():
        opt.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        return loss
    print(epoch, opt.step(closure).item())
