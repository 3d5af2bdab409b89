"""Score distillation: a frozen denoiser gives the gradient of rendered images."""

import argparse

import torch
from torch import nn


class Painter(nn.Module):
    def __init__(self, size=12, width=32):
        super().__init__()
        axis = torch.linspace(-1, 1, size)
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2)
        self.register_buffer("grid", torch.cat([grid, (3 * grid).sin(), (3 * grid).cos()], 1))
        self.net = nn.Sequential(nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.size = size

    def forward(self):
        return torch.sigmoid(self.net(self.grid)).view(1, 1, self.size, self.size)


class Prior:
    """A Gaussian around one image, whose best denoiser is known."""

    def __init__(self, size):
        axis = torch.linspace(-1, 1, size)
        self.mean = ((axis[:, None] ** 2 + axis**2) < 0.5).float()[None, None]

    @torch.no_grad()
    def noise(self, noisy, alpha):
        return (noisy - alpha * self.mean) / (1 - alpha**2) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    painter, prior = Painter(), Prior(12)
    optimizer = torch.optim.Adam(painter.parameters(), lr=args.lr)
    for step in range(args.steps):
        image = painter()
        alpha = 0.3 + 0.6 * torch.rand(()).item()
        noise = torch.randn_like(image)
        noisy = alpha * image.detach() + (1 - alpha**2) ** 0.5 * noise
        direction = (1 - alpha**2) * (prior.noise(noisy, alpha) - noise)
        optimizer.zero_grad()
        image.backward(gradient=direction)
        optimizer.step()
        if step % 40 == 0:
            print(step, (image - prior.mean).pow(2).mean().item())


if __name__ == "__main__":
    main()
