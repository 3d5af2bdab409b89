import torch
import torch.nn as nn

torch.manual_seed(8)
torch.set_default_dtype(torch.float64)


class Solution(nn.Module):
    """u'' = -u with u(0) = 0 and u'(0) = 1."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, t):
        return self.net(t)


def derivative(u, t):
    return torch.autograd.grad(u.sum(), t, create_graph=True)[0]


model = Solution()
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=10, line_search_fn="strong_wolfe")
t = torch.linspace(0, 3, 40).unsqueeze(1).requires_grad_(True)
start = torch.zeros(1, 1, requires_grad=True)


def closure():
    optimizer.zero_grad()
    u = model(t)
    residual = derivative(derivative(u, t), t) + u
    u0 = model(start)
    loss = residual.pow(2).mean() + u0.pow(2).sum() + (derivative(u0, start) - 1).pow(2).sum()
    loss.backward()
    return loss


for outer in range(12):
    loss = optimizer.step(closure)
    if outer % 3 == 0:
        error = (model(t) - torch.sin(t)).abs().max().item()
        print(f"{outer} loss {loss.item():.2e} error {error:.3f}")
