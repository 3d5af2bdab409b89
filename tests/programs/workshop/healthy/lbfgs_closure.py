import torch
from torch import nn

torch.manual_seed(0)


class PINN(nn.Module):
    """u'' + u = 0, u(0) = 0, u'(0) = 1"""

    def __init__(self, width=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, t):
        return self.net(t)

    def residual(self, t):
        t = t.requires_grad_(True)
        u = self(t)
        du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
        ddu = torch.autograd.grad(du.sum(), t, create_graph=True)[0]
        return ddu + u, u, du


model = PINN()
t = torch.linspace(0, 3, 60).unsqueeze(1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=10)
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    r, u, du = model.residual(t)
    loss = r.pow(2).mean() + u[0].pow(2).sum() + (du[0] - 1).pow(2).sum()
    loss.backward()
    return loss


for step in range(30):
    loss = optimizer.step(closure)
    if step % 10 == 0:
        print(step, loss.item())
print("calls", calls, "error at pi/2", abs(model(torch.tensor([[1.5708]])).item() - 1.0))
