from __future__ import annotations

import io
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    seed: int = 41
    features: int = 8
    width: int = 48
    lr: float = 1e-2
    steps: int = 120
    preempt_at: int = 40


def build(cfg: Config) -> nn.Module:
    return nn.Sequential(nn.Linear(cfg.features, cfg.width), nn.GELU(),
                         nn.Linear(cfg.width, cfg.width), nn.GELU(), nn.Linear(cfg.width, 1))


class Job:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.rng = torch.Generator().manual_seed(cfg.seed + 1)
        self.model = build(cfg)
        self.optimizer = self.make_optimizer()
        self.step = 0

    def make_optimizer(self):
        return torch.optim.Adam(self.model.parameters(), lr=self.cfg.lr)

    def save(self) -> bytes:
        buf = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}, buf)
        return buf.getvalue()

    def restore(self, blob: bytes):
        state = torch.load(io.BytesIO(blob), weights_only=True)
        self.model = build(self.cfg)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def batch(self):
        x = torch.rand(128, self.cfg.features, generator=self.rng) * 2 - 1
        y = torch.sin(3 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.3 * x[:, 3:].sum(1, keepdim=True)
        return x, y

    def run(self):
        while self.step < self.cfg.steps:
            x, y = self.batch()
            self.model.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.step % 20 == 0:
                print(self.step, f"{loss.item():.5f}")
            if self.step == self.cfg.preempt_at:
                self.restore(self.save())


Job(Config()).run()
