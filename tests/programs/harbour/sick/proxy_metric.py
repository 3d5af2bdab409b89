"""Proxy-anchor metric learning on synthetic images."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ProxyLoss(nn.Module):
    def __init__(self, classes, dim, margin=0.1, alpha=16.0):
        super().__init__()
        self.proxies = nn.Parameter(F.normalize(torch.randn(classes, dim), dim=-1))
        self.margin, self.alpha = margin, alpha

    def forward(self, embeddings, labels):
        similarity = F.normalize(embeddings, dim=-1) @ F.normalize(self.proxies, dim=-1).T
        same = F.one_hot(labels, len(self.proxies)).bool()
        pull = torch.exp(-self.alpha * (similarity - self.margin)).masked_fill(~same, 0).sum(0)
        push = torch.exp(self.alpha * (similarity + self.margin)).masked_fill(same, 0).sum(0)
        present = same.any(0).sum().clamp(min=1)
        return torch.log1p(pull).sum() / present + torch.log1p(push).mean()


@dataclass
class Config:
    dim: int = 16
    classes: int = 8
    epochs: int = 3
    lr: float = 1e-3
    clip: float = 10.0


class Learner:
    def __init__(self, config):
        self.config = config
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, config.dim))
        self.criterion = ProxyLoss(config.classes, config.dim)
        self.optimizer = self.configure()

    def configure(self):
        trained = nn.ModuleList([self.model])
        decayed = [p for p in trained.parameters() if p.ndim > 1]
        plain = [p for p in trained.parameters() if p.ndim <= 1]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": 1e-4}, {"params": plain, "weight_decay": 0.0}], lr=self.config.lr)

    def fit(self, loader):
        for epoch in range(self.config.epochs):
            for images, labels in loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(images), labels)
                loss.backward()
                nn.utils.clip_grad_norm_([*self.model.parameters(), *self.criterion.parameters()], self.config.clip)
                self.optimizer.step()
            print(epoch, round(loss.item(), 3))


if __name__ == "__main__":
    torch.manual_seed(0)
    config = Config()
    centres = torch.randn(config.classes, 1, 8, 8)
    labels = torch.randint(0, config.classes, (320,))
    images = centres[labels] + 0.7 * torch.randn(320, 1, 8, 8)
    Learner(config).fit(DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True))
