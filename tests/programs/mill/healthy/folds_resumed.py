import io
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler


@dataclass
class FoldConfig:
    folds: int = 3
    epochs: int = 4
    stop_after: int = 2
    batch_size: int = 16
    lr: float = 5e-3
    decay: float = 0.95


class Net(nn.Module):
    def __init__(self, features=8, width=24, classes=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, classes),
        )

    def forward(self, x):
        return self.net(x)


class Run:
    def __init__(self, config, steps):
        self.config = config
        self.model = Net()
        self.ema = AveragedModel(
            self.model, multi_avg_fn=get_ema_multi_avg_fn(config.decay), use_buffers=True
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=10 * config.lr, total_steps=steps
        )
        self.epoch = 0

    def parts(self):
        return {
            "model": self.model,
            "ema": self.ema,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
        }

    def save(self):
        stream = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts().items()}
        torch.save({**state, "epoch": self.epoch}, stream)
        stream.seek(0)
        return stream

    def load(self, stream):
        state = torch.load(stream, weights_only=False)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.epoch = state["epoch"]
        return self

    def train_until(self, loader, epoch):
        while self.epoch < epoch:
            self.model.train()
            for x, y in loader:
                loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.ema.update_parameters(self.model)
            self.epoch += 1

    @torch.no_grad()
    def accuracy(self, data):
        self.ema.eval()
        x, y = data[:]
        return (self.ema(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(58)
    config = FoldConfig()
    x = torch.randn(240, 8)
    y = torch.bucketize(x[:, 0] + 0.5 * x[:, 1], torch.tensor([-0.3, 0.9]))
    data = TensorDataset(x, y)
    scores = []
    for train, valid in StratifiedKFold(config.folds, shuffle=True, random_state=0).split(x, y):
        weights = (1.0 / torch.bincount(y[train]).float())[y[train]]
        sampler = WeightedRandomSampler(weights, len(train))
        loader = DataLoader(
            Subset(data, train), config.batch_size, sampler=sampler, drop_last=True
        )
        steps = config.epochs * len(loader)
        first = Run(config, steps)
        first.train_until(loader, config.stop_after)
        second = Run(config, steps).load(first.save())
        second.train_until(loader, config.epochs)
        held = TensorDataset(x[valid], y[valid])
        scores.append(second.accuracy(held))
    print(scores)


if __name__ == "__main__":
    main()
