import torch
from torch import nn

PI = torch.pi


class PINN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x)


def derivative(y, x, create_graph=True):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=create_graph)[0]


def residual(model, x):
    u = model(x)
    u_x = derivative(u, x)
    u_xx = derivative(u_x, x)
    return u_xx + PI**2 * torch.sin(PI * x)


def main():
    torch.manual_seed(1234)
    model = PINN()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    boundary = torch.tensor([[0.0], [1.0]])
    for step in range(120):
        x = torch.rand(64, 1, requires_grad=True)
        physics = residual(model, x).pow(2).mean()
        edges = model(boundary).pow(2).mean()
        loss = physics + 10 * edges
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            with torch.no_grad():
                grid = torch.linspace(0, 1, 20).unsqueeze(1)
                error = (model(grid) - torch.sin(PI * grid)).abs().max()
            print(step, physics.item(), edges.item(), error.item())


if __name__ == "__main__":
    main()
