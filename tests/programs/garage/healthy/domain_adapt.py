import numpy as np
import torch
from torch import nn
from torch.autograd import Function


class ReverseGradient(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.weight * grad, None


class DANN(nn.Module):
    def __init__(self, features=8, hidden=32, classes=3):
        super().__init__()
        self.extractor = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.classifier = nn.Linear(hidden, classes)
        self.domain = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x, weight):
        h = self.extractor(x)
        return self.classifier(h), self.domain(ReverseGradient.apply(h, weight)).squeeze(-1)


def sample(rng, count, shift):
    labels = rng.integers(3, size=count)
    centres = np.array([[2, 0], [-1, 2], [-1, -2]], dtype=float)
    x = rng.normal(size=(count, 8)) * 0.6
    x[:, :2] += centres[labels]
    x += shift
    return torch.tensor(x, dtype=torch.float32), torch.tensor(labels)


def strength(step, steps, gamma=10.0):
    return 2.0 / (1.0 + np.exp(-gamma * step / steps)) - 1.0


def main(steps=60, batch=32):
    torch.manual_seed(16)
    rng = np.random.default_rng(16)
    shift = rng.normal(size=8) * 0.8
    model = DANN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    cross_entropy = nn.CrossEntropyLoss()
    binary = nn.BCEWithLogitsLoss()
    for step in range(steps):
        weight = strength(step, steps)
        source, labels = sample(rng, batch, 0.0)
        target, _ = sample(rng, batch, shift)
        logits, domain_source = model(source, weight)
        _, domain_target = model(target, weight)
        class_loss = cross_entropy(logits, labels)
        domain_loss = binary(domain_source, torch.zeros(batch)) + binary(domain_target, torch.ones(batch))
        loss = class_loss + domain_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step}: class {class_loss.item():.3f} domain {domain_loss.item():.3f}")


if __name__ == "__main__":
    main()
