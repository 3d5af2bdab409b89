"""Fit a sum of decays to measurements with L-BFGS."""

import argparse

import torch
from torch import nn


class Decays(nn.Module):
    def __init__(self, terms):
        super().__init__()
        self.amplitude = nn.Parameter(torch.ones(terms) / terms)
        self.log_rate = nn.Parameter(torch.linspace(-1.5, 1.0, terms))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, t):
        return (self.amplitude * torch.exp(-t[:, None] * self.log_rate.exp())).sum(1) + self.offset


def measurements(n):
    t = torch.linspace(0, 6, n)
    clean = 1.7 * torch.exp(-0.4 * t) + 0.8 * torch.exp(-2.5 * t) + 0.2
    return t, clean + 0.01 * torch.randn(n)


class Fitter:
    def __init__(self, model, rate, ridge):
        self.model, self.ridge = model, ridge
        self.optimizer = torch.optim.LBFGS(model.parameters(), lr=rate, max_iter=8)
        self.history = []

    def objective(self, t, y):
        error = (self.model(t) - y).pow(2).mean()
        return error + self.ridge * self.model.amplitude.pow(2).sum()

    def run(self, t, y, rounds):
        def closure():
            self.optimizer.zero_grad()
            loss = self.objective(t, y)
            loss.backward()
            self.history.append(loss.item())
            return loss

        for _ in range(rounds):
            self.optimizer.step(closure)
        return self.history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--terms", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--rate", type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(0)
    t, y = measurements(80)
    model = Decays(args.terms)
    history = Fitter(model, args.rate, ridge=1e-5).run(t, y, args.rounds)
    print(f"{len(history)} evaluations, first {history[0]:.5f}, last {history[-1]:.5f}")
    print("rates", sorted(round(r, 3) for r in model.log_rate.exp().tolist()))


if __name__ == "__main__":
    main()
