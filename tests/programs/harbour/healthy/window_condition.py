"""Train a denoiser on two-dimensional data with micro-batches."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Denoiser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.time = nn.Embedding(50, hidden)
        self.inputs = nn.Linear(2, hidden)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2))

    def forward(self, noisy, steps):
        return self.body(self.inputs(noisy) + self.time(steps))


class Schedule:
    def __init__(self, steps=50):
        self.steps = steps
        self.kept = torch.cumprod(1 - torch.linspace(1e-4, 0.08, steps), dim=0)

    def corrupt(self, clean):
        steps = torch.randint(0, self.steps, (len(clean),))
        noise = torch.randn_like(clean)
        kept = self.kept[steps, None]
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise, noise, steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    angle = torch.rand(640) * 6.28
    data = torch.stack([angle.cos(), angle.sin()], 1)
    accelerator = Accelerator(cpu=True)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(data), batch_size=args.micro_batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    schedule = Schedule()
    for epoch in range(args.epochs):
        for step, (clean,) in enumerate(loader):
            noisy, noise, steps = schedule.corrupt(clean)
            loss = F.mse_loss(model(noisy, steps), noise) / args.accumulation
            accelerator.backward(loss)
            if (step + 1) % args.accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    main()
