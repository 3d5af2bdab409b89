from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


@dataclass
class MetaConfig:
    shots: int = 8
    tasks: int = 4
    inner_steps: int = 2
    inner_rate: float = 0.05
    outer_rate: float = 2e-3
    iterations: int = 30


class SineTask:
    def __init__(self):
        self.amplitude = 0.5 + 2 * torch.rand(())
        self.phase = 3.14 * torch.rand(())

    def draw(self, count):
        x = 8 * torch.rand(count, 1) - 4
        return x, self.amplitude * torch.sin(x + self.phase)


class Regressor(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.net(x))


class MetaLearner:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.optimizer = torch.optim.Adam(model.parameters(), lr=config.outer_rate)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)

    def start(self):
        return {
            name: p.detach().clone().requires_grad_()
            for name, p in self.model.named_parameters()
        }

    def loss(self, weights, x, y):
        return F.mse_loss(functional_call(self.model, weights, (x,)), y)

    def adapt(self, x, y):
        weights = self.start()
        for _ in range(self.config.inner_steps):
            loss = self.loss(weights, x, y)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {
                name: p - self.config.inner_rate * g
                for (name, p), g in zip(weights.items(), grads, strict=True)
            }
        return weights

    def meta_loss(self, tasks):
        losses = []
        for task in tasks:
            weights = self.adapt(*task.draw(self.config.shots))
            losses.append(self.loss(weights, *task.draw(self.config.shots)))
        return torch.stack(losses).mean()

    def iterate(self):
        loss = self.meta_loss([SineTask() for _ in range(self.config.tasks)])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()


def main():
    torch.manual_seed(2)
    config = MetaConfig()
    learner = MetaLearner(Regressor(), config)
    losses = [learner.iterate() for _ in range(config.iterations)]
    half = len(losses) // 2
    print(sum(losses[:half]) / half, sum(losses[half:]) / half)


if __name__ == "__main__":
    main()
