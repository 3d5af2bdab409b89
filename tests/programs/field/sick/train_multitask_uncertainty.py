import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class UncertaintyLoss(nn.Module):
    """Kendall et al.: each task's loss is weighted by a learned precision."""

    def __init__(self, tasks):
        super().__init__()
        self.log_vars = nn.ParameterDict({task: nn.Parameter(torch.tensor(-1.0)) for task in tasks})
        self.losses = {"depth": nn.L1Loss(), "kind": nn.CrossEntropyLoss()}

    def forward(self, outputs, targets):
        total = 0.0
        for task, log_var in self.log_vars.items():
            loss = self.losses[task](outputs[task], targets[task])
            total = total + torch.exp(-log_var) * loss + log_var
        return total


class Perception(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.depth = nn.Linear(64, 1)
        self.kind = nn.Linear(64, 4)

    def forward(self, x):
        h = self.trunk(x)
        return {"depth": self.depth(h).squeeze(1), "kind": self.kind(h)}


class BaseTrainer:
    def __init__(self, model, criterion, optimizer):
        self.model, self.criterion, self.optimizer = model, criterion, optimizer

    def run_epoch(self, loader):
        total = 0.0
        for x, depth, kind in loader:
            loss = self.criterion(self.model(x), {"depth": depth, "kind": kind})
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(loader)


def main():
    torch.manual_seed(4)
    x = torch.randn(320, 12)
    data = TensorDataset(x, x[:, :4].sum(1), x[:, 4:8].argmax(1))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = Perception()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = UncertaintyLoss(["depth", "kind"])
    trainer = BaseTrainer(model, criterion, optimizer)
    for epoch in range(8):
        print(epoch, round(trainer.run_epoch(loader), 4), [round(v.item(), 3) for v in criterion.log_vars.values()])


if __name__ == "__main__":
    main()
