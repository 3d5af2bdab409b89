import torch
from torch import autograd, nn

SIZE = 12


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 9, 1)
        )

    def forward(self, x):
        return self.main(x)


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.fc = nn.Linear(latent, 32 * 9)
        self.main = nn.Sequential(
            nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh()
        )

    def forward(self, z):
        return self.main(self.fc(z).view(-1, 32, 3, 3))


class WGAN:
    def __init__(self, lambda_term=10, critic_iter=3):
        self.C, self.G = Critic(), Generator()
        self.d_optimizer = torch.optim.Adam(self.C.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.g_optimizer = torch.optim.Adam(self.G.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.lambda_term, self.critic_iter = lambda_term, critic_iter

    def penalty(self, real, fake):
        eta = torch.rand(real.shape[0], 1, 1, 1)
        mixed = (eta * real + (1 - eta) * fake).requires_grad_(True)
        out = self.C(mixed)
        gradients = autograd.grad(out, mixed, torch.ones_like(out), create_graph=True, retain_graph=True)[0]
        return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * self.lambda_term

    def train(self, iterations):
        for it in range(iterations):
            for _ in range(self.critic_iter):
                real, fake = images(24), self.G(torch.randn(24, 8)).detach()
                d_loss = self.C(fake).mean() - self.C(real).mean() + self.penalty(real, fake)
                self.d_optimizer.zero_grad()
                d_loss.backward()
                self.d_optimizer.step()
            g_loss = -self.C(self.G(torch.randn(24, 8))).mean()
            self.g_optimizer.zero_grad()
            g_loss.backward()
            self.g_optimizer.step()
            if it % 10 == 0:
                print(it, round(d_loss.item(), 3), round(g_loss.item(), 3))


def images(n):
    x = -torch.ones(n, 1, SIZE, SIZE)
    for i in range(n):
        r, c = torch.randint(0, 7, (2,))
        x[i, 0, r : r + 5, c : c + 5] = 1
    return x


if __name__ == "__main__":
    torch.manual_seed(29)
    WGAN().train(50)
