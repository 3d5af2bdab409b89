import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, epochs, lr):
        self.model = model
        self.loader = loader
        self.epochs = epochs
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=epochs)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def run_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.loader:
            self.opt.zero_grad()
            loss = self.loss(self.model(x), y)
            loss.backward()
            self.opt.step()
            self.sched.step()
            total += loss.item() * len(x)
        return total / len(self.loader.dataset)

    def fit(self):
        for e in range(self.epochs):
            print(f"[{e}] loss={self.run_epoch():.4f} lr={self.opt.param_groups[0]['lr']:.5f}")


if __name__ == "__main__":
    torch.manual_seed(42)
    x = torch.randn(640, 1, 8, 8)
    y = (x[:, 0, :4].mean((1, 2)) > x[:, 0, 4:].mean((1, 2))).long()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 2),
    )
    Trainer(net, DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), epochs=6, lr=0.05).fit()
