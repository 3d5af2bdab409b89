import copy

import torch
import torch.nn.functional as F
from torch import nn


def make():
    return nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))


def task():
    amplitude, phase = 0.5 + 2 * torch.rand(1), 3.14 * torch.rand(1)

    def sample(n):
        x = 10 * torch.rand(n, 1) - 5
        return x, amplitude * torch.sin(x + phase)

    return sample


def inner_loop(model, sample, steps=5, lr=0.02):
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=lr)
    for _ in range(steps):
        x, y = sample(16)
        loss = F.mse_loss(learner(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return learner.state_dict(), loss.item()


def main(iterations=25, epsilon=0.2):
    torch.manual_seed(9)
    model = make()
    for iteration in range(iterations):
        weights = model.state_dict()
        adapted, loss = inner_loop(model, task())
        model.load_state_dict({k: weights[k] + epsilon * (adapted[k] - weights[k]) for k in weights})
        if iteration % 5 == 0:
            print(iteration, loss)


if __name__ == "__main__":
    main()
