"""Logistic regression solved by LBFGS with a line search, in mini-epochs."""

import torch
from torch import nn
from torch.nn import functional as F


class Solver:
    def __init__(self, model, decay=1e-3):
        self.model, self.decay = model, decay
        self.optimizer = torch.optim.LBFGS(
            model.parameters(), lr=1.0, max_iter=8, line_search_fn="strong_wolfe"
        )

    def objective(self, x, y):
        penalty = sum(p.square().sum() for p in self.model.parameters())
        return F.cross_entropy(self.model(x), y) + self.decay * penalty

    def fit(self, x, y, rounds=6):
        for number in range(rounds):
            self.optimizer.zero_grad()

            def evaluate():
                loss = self.objective(x, y)
                loss.backward()
                return loss

            loss = self.optimizer.step(evaluate)
            print(f"round {number} loss {loss.item():.5f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(6)
    label = torch.randint(0, 4, (200,))
    points = torch.randn(4, 12)[label] + torch.randn(200, 12)
    Solver(nn.Linear(12, 4)).fit(points, label)
