from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, vocabulary=90, width=32, tags=6):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True) for _ in range(2)]
        )
        self.output = nn.Linear(width, tags)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.encoder:
            hidden = layer(hidden)
        return self.output(hidden)


class Callback:
    def on_fit_start(self, trainer):
        pass

    def on_epoch_start(self, trainer, epoch):
        pass


class GradualUnfreezing(Callback):
    def __init__(self, schedule):
        self.schedule = schedule

    def on_fit_start(self, trainer):
        trainer.model.embedding.requires_grad_(False)
        trainer.model.encoder.requires_grad_(False)

    def on_epoch_start(self, trainer, epoch):
        for index in self.schedule.get(epoch, ()):
            layer = trainer.model.encoder[index]
            layer.requires_grad_(True)
            print(f"epoch {epoch}: layer {index} trains from now on")


@dataclass
class Trainer:
    model: nn.Module
    epochs: int = 4
    steps: int = 15
    callbacks: list = field(default_factory=list)

    def fit(self, batches):
        for callback in self.callbacks:
            callback.on_fit_start(self)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.model.train()
        for epoch in range(self.epochs):
            for callback in self.callbacks:
                callback.on_epoch_start(self, epoch)
            total = 0.0
            for _ in range(self.steps):
                tokens, tags = next(batches)
                optimizer.zero_grad()
                loss = F.cross_entropy(self.model(tokens).flatten(0, 1), tags.flatten())
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / self.steps:.3f}")


def stream(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        tokens = torch.randint(0, 90, (16, 14), generator=generator)
        yield tokens, (tokens + tokens.roll(1, dims=1)) % 6


if __name__ == "__main__":
    torch.manual_seed(4)
    Trainer(Tagger(), callbacks=[GradualUnfreezing({1: [1], 2: [0]})]).fit(stream(8))
