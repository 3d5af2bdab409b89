import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--eps", type=float, default=0.1)
ap.add_argument("--pgd-steps", type=int, default=3)
ap.add_argument("--steps", type=int, default=40)
args = ap.parse_args()


def attack(model, x, y):
    model.eval()
    delta = torch.empty_like(x).uniform_(-args.eps, args.eps)
    for _ in range(args.pgd_steps):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model(x + delta), y)
        (g,) = torch.autograd.grad(loss, delta)
        delta = (delta + args.eps / 2 * g.sign()).clamp(-args.eps, args.eps).detach()
    model.train()
    return x + delta


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.2), nn.Linear(8 * 16, 2),
)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(args.steps):
    x = torch.rand(32, 1, 8, 8)
    y = torch.randint(0, 2, (32,))
    x[y == 1, :, 2:5, 2:5] += 0.5
    loss = F.cross_entropy(model(attack(model, x, y)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("robust loss", loss.item())
