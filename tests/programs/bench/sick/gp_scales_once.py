"""Exact Gaussian process regression by gradient descent on the hyperparameters."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class RBFKernel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_lengthscale = nn.Parameter(torch.zeros(dim))
        self.log_outputscale = nn.Parameter(torch.zeros(()))
        self.lengthscale = self.log_lengthscale.exp()
        self.outputscale = self.log_outputscale.exp()

    def forward(self, a, b):
        d2 = ((a[:, None] - b[None]) / self.lengthscale).pow(2).sum(-1)
        return self.outputscale * torch.exp(-0.5 * d2)


class ExactGP(nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.kernel = RBFKernel(x.shape[1])
        self.raw_noise = nn.Parameter(torch.tensor(-2.0))
        self.mean = nn.Parameter(torch.zeros(()))

    def neg_log_marginal(self):
        n = len(self.x)
        cov = self.kernel(self.x, self.x) + (F.softplus(self.raw_noise) + 1e-4) * torch.eye(n)
        chol = torch.linalg.cholesky(cov)
        diff = (self.y - self.mean).unsqueeze(1)
        alpha = torch.cholesky_solve(diff, chol)
        return 0.5 * (diff * alpha).sum() + chol.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi)


def main():
    torch.manual_seed(40)
    x = torch.rand(40, 2) * 4
    y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(40)
    gp = ExactGP(x, y)
    optimizer = torch.optim.Adam(gp.parameters(), lr=0.05)
    for step in range(40):
        optimizer.zero_grad()
        loss = gp.neg_log_marginal()
        loss.backward(retain_graph=True)
        optimizer.step()
        if step % 10 == 0:
            print(f"{step}: nll {loss.item():.3f} lengthscale {gp.kernel.lengthscale.tolist()}")


if __name__ == "__main__":
    main()
