import argparse
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class AmpConfig:
    enabled: bool = True
    dtype: torch.dtype = torch.float16
    init_scale: float = 2.0**12
    max_norm: float = 1.0


class PositionalEncoding(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        place = torch.arange(length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1e3) / width))
        table = torch.zeros(length, width)
        table[:, 0::2] = torch.sin(place * rate)
        table[:, 1::2] = torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Forecaster(nn.Module):
    def __init__(self, features=5, width=32, depth=2, horizon=3, length=20):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.positions = PositionalEncoding(width, length)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, horizon))

    def forward(self, x):
        return self.head(self.encoder(self.positions(self.enter(x))).mean(1))


class AmpStepper:
    def __init__(self, model, optimizer, config):
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=config.init_scale, enabled=config.enabled
        )

    def forward(self):
        return torch.autocast("cpu", dtype=self.config.dtype, enabled=self.config.enabled)

    def clip(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)

    def __call__(self, loss):
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if self.config.max_norm > 0:
            self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def draw(count, length=20, features=5, horizon=3):
    walk = torch.randn(count, length + horizon, features).cumsum(1) * 0.3
    walk = walk + torch.sin(torch.arange(length + horizon) * 0.7).view(1, -1, 1)
    return TensorDataset(walk[:, :length], walk[:, length:, 0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(16)
    model = Forecaster()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    step = AmpStepper(model, optimizer, AmpConfig())
    loader = DataLoader(draw(192), batch_size=16, shuffle=True)
    for epoch in range(args.epochs):
        total = 0.0
        for window, future in loader:
            with step.forward():
                prediction = model(window)
            loss = nn.functional.smooth_l1_loss(prediction.float(), future)
            step(loss)
            total += loss.item()
        print(epoch, total / len(loader), step.scaler.get_scale())


if __name__ == "__main__":
    main()
