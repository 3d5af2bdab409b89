"""Damped oscillator by a physics-informed network, with an unknown damping."""

import torch
from torch import nn

torch.manual_seed(16)


def solution(t, d=0.4, w0=4.0):
    w = (w0**2 - d**2) ** 0.5
    return torch.exp(-d * t) * torch.cos(w * t)


net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
damping = nn.Parameter(torch.tensor([0.1]))
parameters = [*net.parameters(), damping]
t_data = torch.linspace(0, 1, 12).view(-1, 1)
t_physics = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)
u_data = solution(t_data)


def objective():
    u = net(t_physics)
    u_t = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    u_tt = torch.autograd.grad(u_t, t_physics, torch.ones_like(u_t), create_graph=True)[0]
    residual = u_tt + 2 * damping * u_t + 16.0 * u
    return (net(t_data) - u_data).pow(2).mean() + 1e-4 * residual.pow(2).mean()


adam = torch.optim.Adam(parameters, lr=5e-3)
for i in range(40):
    adam.zero_grad()
    loss = objective()
    loss.backward()
    adam.step()

lbfgs = torch.optim.LBFGS(parameters, lr=0.5, max_iter=5, history_size=10, line_search_fn="strong_wolfe")


def closure():
    lbfgs.zero_grad()
    loss = objective()
    loss.backward()
    return loss


for i in range(5):
    loss = lbfgs.step(closure)
    print(f"{i}: loss {loss.item():.5f} damping {damping.item():.3f}")
