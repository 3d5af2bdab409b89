"""A small trainer class with gradient accumulation and gradient clipping."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class TrainingArguments:
    epochs: int = 3
    per_device_batch: int = 8
    gradient_accumulation_steps: int = 4
    learning_rate: float = 3e-3
    max_grad_norm: float = 1.0


class Trainer:
    def __init__(self, model, dataset, args):
        self.model, self.args = model, args
        self.loader = DataLoader(dataset, batch_size=args.per_device_batch, shuffle=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.global_step = 0

    def compute_loss(self, inputs, labels):
        return F.cross_entropy(self.model(inputs), labels)

    def training_step(self, batch):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.compute_loss(*batch) / self.args.gradient_accumulation_steps
        loss.backward()
        return loss.detach()

    def train(self):
        for epoch in range(self.args.epochs):
            tally = torch.zeros(())
            for index, batch in enumerate(self.loader):
                tally += self.training_step(batch)
                if (index + 1) % self.args.gradient_accumulation_steps == 0:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                    self.optimizer.step()
                    self.global_step += 1
            print(f"epoch {epoch} step {self.global_step} loss {tally.item() / len(self.loader):.4f}")


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 20)
    y = (x @ torch.randn(20, 5)).argmax(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5))
    Trainer(model, TensorDataset(x, y), TrainingArguments()).train()


if __name__ == "__main__":
    main()
