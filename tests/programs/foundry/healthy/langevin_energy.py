"""Energy-based model: contrastive divergence with Langevin samples from a replay buffer."""
import torch
from torch import nn


class Energy(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1) + 0.05 * x.pow(2).sum(-1)


class Sampler:
    def __init__(self, energy, size=512, step=0.1, noise=0.05):
        self.energy, self.step, self.noise = energy, step, noise
        self.buffer = 4 * torch.rand(size, 2) - 2

    def draw(self, n, rounds=15):
        index = torch.randint(0, len(self.buffer), (n,))
        x = self.buffer[index].clone()
        fresh = torch.rand(n) < 0.05
        x[fresh] = 4 * torch.rand(int(fresh.sum()), 2) - 2
        for p in self.energy.parameters():
            p.requires_grad_(False)
        for _ in range(rounds):
            x.requires_grad_(True)
            (slope,) = torch.autograd.grad(self.energy(x).sum(), x)
            x = x.detach() - self.step * slope.clamp(-1, 1) + self.noise * torch.randn_like(x)
        for p in self.energy.parameters():
            p.requires_grad_(True)
        self.buffer[index] = x
        return x


def checkerboard(n):
    cell = torch.randint(0, 8, (n,))
    row, column = cell // 2, 2 * (cell % 2) + (cell // 2) % 2
    corner = torch.stack([row, column], 1).float()
    return corner + torch.rand(n, 2) - 2


def main():
    torch.manual_seed(310)
    energy = Energy()
    sampler = Sampler(energy)
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3, betas=(0.0, 0.999))
    for step in range(25):
        real = checkerboard(96)
        fake = sampler.draw(96)
        e_real, e_fake = energy(real), energy(fake)
        divergence = e_real.mean() - e_fake.mean()
        regular = 0.1 * (e_real.pow(2) + e_fake.pow(2)).mean()
        optimizer.zero_grad()
        (divergence + regular).backward()
        optimizer.step()
        if step % 6 == 0:
            print(f"{step:3d} divergence {divergence.item():+.4f} regular {regular.item():.4f}")


if __name__ == "__main__":
    main()
