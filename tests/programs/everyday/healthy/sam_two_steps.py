import torch
import torch.nn as nn
from sklearn.datasets import load_digits


class SAM:
    """Climbs to the worst point nearby, and steps from there."""

    def __init__(self, base, rho=0.05):
        self.base, self.rho = base, rho
        self.params = [p for group in base.param_groups for p in group["params"]]

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm()
        self.moves = [p.grad * self.rho / (norm + 1e-12) for p in self.params]
        for p, move in zip(self.params, self.moves):
            p.add_(move)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, move in zip(self.params, self.moves):
            p.sub_(move)
        self.base.step()
        self.base.zero_grad()


def main():
    torch.manual_seed(5)
    digits = load_digits()
    x = torch.tensor(digits.data[:1024], dtype=torch.float32) / 16
    y = torch.tensor(digits.target[:1024])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    sam = SAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        for rows in torch.randperm(1024).split(64):
            loss = criterion(model(x[rows]), y[rows])
            loss.backward()
            sam.climb()
            criterion(model(x[rows]), y[rows]).backward()
            sam.descend()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
