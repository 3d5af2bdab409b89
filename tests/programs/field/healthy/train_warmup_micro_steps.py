from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class TrainConfig:
    lr: float = 5e-3
    warmup_steps: int = 5
    total_steps: int = 60
    accumulation: int = 4
    micro_batch: int = 8


def linear_schedule(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total - step) / (total - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class Trainer:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        self.scheduler = linear_schedule(self.optimizer, cfg.warmup_steps, cfg.total_steps)
        self.micro_step = 0

    def micro_batch(self):
        x = torch.randn(self.cfg.micro_batch, 10)
        return x, x[:, :2].prod(1, keepdim=True) + x[:, 2:3]

    def train(self):
        for step in range(self.cfg.total_steps):
            total = 0.0
            for _ in range(self.cfg.accumulation):
                x, y = self.micro_batch()
                loss = nn.functional.mse_loss(self.model(x), y) / self.cfg.accumulation
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad(set_to_none=True)
            if step % 10 == 0:
                print(step, round(total, 4), self.optimizer.param_groups[0]["lr"])


torch.manual_seed(25)
Trainer(nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 1)), TrainConfig()).train()
