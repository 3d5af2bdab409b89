from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainConfig:
    size: int = 16
    points: int = 3
    width: int = 16
    batch_size: int = 12
    epochs: int = 3
    lr: float = 2e-3
    ema_decay: float = 0.99
    grad_clip: float = 5.0


class Points(Dataset):
    def __init__(self, config, count):
        self.config = config
        self.places = torch.randint(1, config.size - 1, (count, config.points, 2))

    def __len__(self):
        return len(self.places)

    def heat(self, places):
        axis = torch.arange(self.config.size)
        rows = (axis - places[:, :1]).pow(2)[:, :, None]
        columns = (axis - places[:, 1:]).pow(2)[:, None, :]
        return torch.exp(-(rows + columns) / 3.0)

    def __getitem__(self, index):
        maps = self.heat(self.places[index])
        colours = torch.eye(3)[: self.config.points]
        image = torch.einsum("phw,pc->chw", maps, colours)
        return image + 0.2 * torch.randn_like(image), maps


class Hourglass(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.width
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width))
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.head = nn.Conv2d(width, config.points, 1)

    def forward(self, image):
        wide = F.relu(self.stem(image))
        return self.head(wide + F.relu(self.up(F.relu(self.down(wide)))))


def averaging(decay):
    def average(averaged, current, count):
        return decay * current + (1 - decay) * averaged

    return average


class Fitter:
    def __init__(self, config):
        self.config = config
        self.model = Hourglass(config)
        self.ema = AveragedModel(self.model, avg_fn=averaging(config.ema_decay), use_buffers=False)
        self.optimizer = torch.optim.RAdam(self.model.parameters(), lr=config.lr)

    def step(self, images, maps):
        loss = F.mse_loss(self.model(images), maps) * 10
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.ema.update_parameters(self.model)
        return loss.item()

    @torch.no_grad()
    def evaluate(self, loader):
        self.ema.train()
        errors = [F.mse_loss(self.ema(images), maps) for images, maps in loader]
        return torch.stack(errors).mean().item()

    def fit(self, train, valid):
        for epoch in range(self.config.epochs):
            losses = [self.step(*batch) for batch in train]
            print(epoch, sum(losses) / len(losses), self.evaluate(valid))


def main():
    torch.manual_seed(22)
    config = TrainConfig()
    train = DataLoader(Points(config, 180), config.batch_size, shuffle=True)
    valid = DataLoader(Points(config, 36), config.batch_size)
    Fitter(config).fit(train, valid)


if __name__ == "__main__":
    main()
