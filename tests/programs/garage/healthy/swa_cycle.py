import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset


def build():
    return nn.Sequential(
        nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
    )


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        value = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return value


class Runner:
    def __init__(self, epochs=6, swa_start=3):
        self.epochs, self.swa_start = epochs, swa_start
        centres = torch.randn(4, 16)
        y = torch.randint(0, 4, (600,))
        x = centres[y] + 1.2 * torch.randn(600, 16)
        self.held = (x[500:], y[500:])
        self.loader = DataLoader(TensorDataset(x[:500], y[:500]), batch_size=50, shuffle=True)
        self.model = build()
        self.average = AveragedModel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)
        self.swa_schedule = SWALR(self.optimizer, swa_lr=0.02, anneal_epochs=2)

    def run(self):
        for epoch in range(self.epochs):
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if epoch >= self.swa_start:
                self.average.update_parameters(self.model)
                self.swa_schedule.step()
            else:
                self.schedule.step()
            print(f"epoch {epoch} loss {loss.item():.4f} held {accuracy(self.model, *self.held):.3f}")
        update_bn(self.loader, self.average)
        print("average", accuracy(self.average, *self.held))


if __name__ == "__main__":
    torch.manual_seed(50)
    Runner().run()
