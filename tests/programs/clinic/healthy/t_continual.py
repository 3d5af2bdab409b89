import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def task(seed, n=480):
    generator = torch.Generator().manual_seed(seed)
    centres = 1.5 * torch.randn(3, 12, generator=generator)
    y = torch.randint(0, 3, (n,), generator=generator)
    return DataLoader(
        TensorDataset(centres[y] + torch.randn(n, 12, generator=generator), y), 32, shuffle=True
    )


class Consolidation:
    def __init__(self, model, strength=20.0):
        self.model = model
        self.strength = strength
        self.fisher, self.old = {}, {}

    def remember(self, loader):
        self.model.eval()
        self.fisher = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}
        for x, y in loader:
            self.model.zero_grad()
            F.nll_loss(self.model(x).log_softmax(1), y).backward()
            for name, parameter in self.model.named_parameters():
                self.fisher[name] += parameter.grad.pow(2) / len(loader)
        self.model.zero_grad()
        self.old = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.model.train()

    def penalty(self):
        terms = [
            (self.fisher[name] * (parameter - self.old[name]).pow(2)).sum()
            for name, parameter in self.model.named_parameters()
            if name in self.fisher
        ]
        return self.strength * torch.stack(terms).sum() if terms else torch.tensor(0.0)


def fit(model, loader, consolidation, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y) + consolidation.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


def main():
    torch.manual_seed(14)
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 3))
    consolidation = Consolidation(model)
    first, second = task(1), task(2)
    fit(model, first, consolidation, 3)
    consolidation.remember(first)
    fit(model, second, consolidation, 3)


if __name__ == "__main__":
    main()
