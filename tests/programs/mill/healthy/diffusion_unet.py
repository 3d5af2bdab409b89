import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class SchedulerConfig:
    steps: int = 100
    beta_start: float = 1e-4
    beta_end: float = 0.02
    prediction_type: str = "epsilon"


class NoiseScheduler:
    def __init__(self, config):
        self.config = config
        betas = torch.linspace(config.beta_start, config.beta_end, config.steps)
        self.alphas = torch.cumprod(1 - betas, dim=0)

    def scales(self, times):
        alpha = self.alphas[times].view(-1, 1, 1, 1)
        return alpha.sqrt(), (1 - alpha).sqrt()

    def add_noise(self, clean, noise, times):
        signal, sigma = self.scales(times)
        return signal * clean + sigma * noise

    def velocity(self, clean, noise, times):
        signal, sigma = self.scales(times)
        return signal * noise - sigma * clean


class TimeBlock(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm = nn.GroupNorm(4, outputs)

    def forward(self, x, time):
        return F.silu(self.norm(self.conv(x) + self.time(time)[:, :, None, None]))


class UNet(nn.Module):
    def __init__(self, width=16, time=32):
        super().__init__()
        self.frequencies = time // 2
        self.time = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = TimeBlock(1, width, time)
        self.middle = TimeBlock(width, width, time)
        self.leave = TimeBlock(2 * width, width, time)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def embed(self, times):
        rates = torch.exp(-math.log(1e4) * torch.arange(self.frequencies) / self.frequencies)
        angles = times[:, None] * rates
        return self.time(torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(self, x, times):
        time = self.embed(times)
        wide = self.enter(x, time)
        deep = F.interpolate(self.middle(F.avg_pool2d(wide, 2), time), scale_factor=2)
        return self.out(self.leave(torch.cat([wide, deep], dim=1), time))


class Diffusion(nn.Module):
    def __init__(self, scheduler):
        super().__init__()
        self.scheduler = scheduler
        self.unet = UNet()

    def noise_for(self, clean):
        offset = 0.05 * torch.randn(len(clean), 1, 1, 1)
        return torch.randn_like(clean) + offset

    def target(self, clean, noise, times):
        if self.scheduler.config.prediction_type == "v_prediction":
            return self.scheduler.velocity(clean, noise, times)
        return noise

    def forward(self, clean):
        noise = self.noise_for(clean)
        times = torch.randint(0, self.scheduler.config.steps, (len(clean),))
        noisy = self.scheduler.add_noise(clean, noise, times)
        return F.mse_loss(self.unet(noisy, times), self.target(clean, noise, times))


def draw(count, size=12):
    axis = torch.arange(size)
    centre = torch.randint(3, size - 3, (count, 2, 1))
    rows = (axis - centre[:, 0]).abs() < 3
    columns = (axis - centre[:, 1]).abs() < 3
    return TensorDataset((rows[:, None, :, None] & columns[:, None, None, :]).float() * 2 - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prediction-type", default="epsilon")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(8)
    scheduler = NoiseScheduler(SchedulerConfig(prediction_type=args.prediction_type))
    model = Diffusion(scheduler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(draw(192), batch_size=16, shuffle=True)
    for epoch in range(args.epochs):
        total = 0.0
        for (clean,) in loader:
            loss = model(clean)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(epoch, total / len(loader))


if __name__ == "__main__":
    main()
