from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap


@dataclass
class PrivacyConfig:
    max_norm: float = 1.0
    noise: float = 0.4
    batch_size: int = 32
    steps: int = 30
    lr: float = 0.3


class PrivateSGD:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
        self.per_example = vmap(
            grad_and_value(self.loss), in_dims=(None, None, 0, 0), randomness="different"
        )

    def loss(self, weights, buffers, image, label):
        logits = functional_call(self.model, (weights, buffers), (image.unsqueeze(0),))
        return F.cross_entropy(logits, label.unsqueeze(0))

    def factors(self, grads):
        squares = [g.flatten(1).pow(2).sum(1) for g in grads.values()]
        norms = torch.stack(squares).sum(0).sqrt()
        return (self.config.max_norm / (norms + 1e-6)).clamp(max=1.0)

    def step(self, images, labels):
        weights = {name: p.detach() for name, p in self.model.named_parameters()}
        buffers = dict(self.model.named_buffers())
        grads, losses = self.per_example(weights, buffers, images, labels)
        factors = self.factors(grads)
        self.optimizer.zero_grad()
        for name, parameter in self.model.named_parameters():
            total = torch.einsum("b,b...->...", factors, grads[name])
            noise = torch.randn_like(total) * self.config.noise * self.config.max_norm
            parameter.grad = (total + noise) / len(images)
        self.optimizer.step()
        return losses.mean().item()


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.GroupNorm(2, 8),
        nn.Tanh(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16 * 9, 3),
    )


def poisson(count, rate):
    rows = torch.nonzero(torch.rand(count) < rate).squeeze(1)
    return rows if len(rows) else torch.zeros(1, dtype=torch.long)


def main():
    torch.manual_seed(56)
    config = PrivacyConfig()
    labels = torch.randint(0, 3, (256,))
    images = 0.3 * torch.randn(256, 1, 12, 12)
    for index, label in enumerate(labels.tolist()):
        images[index, 0, 4 * label : 4 * label + 4] += 1.0
    trainer = PrivateSGD(build_model(), config)
    for step in range(config.steps):
        rows = poisson(len(images), config.batch_size / len(images))
        loss = trainer.step(images[rows], labels[rows])
        if step % 10 == 0:
            print(step, loss)


if __name__ == "__main__":
    main()
