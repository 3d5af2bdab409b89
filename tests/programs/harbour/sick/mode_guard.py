"""Projected-gradient adversarial training of a small convolutional network."""

import torch
import torch.nn.functional as F
from torch import nn


class Evaluating:
    """Run a block of code with the module in eval mode."""

    def __init__(self, module):
        self.module = module

    def __enter__(self):
        self.module.eval()
        self.was_training = self.module.training
        return self.module

    def __exit__(self, *error):
        self.module.train(self.was_training)


class Attack:
    def __init__(self, radius=0.1, size=0.04, steps=3):
        self.radius, self.size, self.steps = radius, size, steps

    def __call__(self, model, images, labels):
        with Evaluating(model):
            shift = torch.empty_like(images).uniform_(-self.radius, self.radius)
            for _ in range(self.steps):
                shift.requires_grad_(True)
                loss = F.cross_entropy(model(images + shift), labels)
                (slope,) = torch.autograd.grad(loss, shift)
                shift = (shift.detach() + self.size * slope.sign()).clamp(-self.radius, self.radius)
        return (images + shift).detach()


def network(classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(16 * 9, classes),
    )


def main():
    torch.manual_seed(0)
    model, attack = network(4), Attack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    templates = torch.randn(4, 1, 12, 12) * 2 + 1
    model.train()
    for step in range(30):
        labels = torch.randint(0, 4, (32,))
        images = templates[labels] + torch.randn(32, 1, 12, 12)
        adversarial = attack(model, images, labels)
        loss = F.cross_entropy(model(adversarial), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
