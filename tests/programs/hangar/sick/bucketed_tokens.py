from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocabulary: int = 64
    width: int = 48
    window: int = 4
    learning_rate: float = 3e-3
    updates: int = 25


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width, padding_idx=0)
        self.rnn = nn.GRU(config.width, config.width, batch_first=True)
        self.head = nn.Linear(config.width, config.vocabulary)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def collate(sequences):
    return nn.utils.rnn.pad_sequence(sequences, batch_first=True)


def corpus(config, generator):
    while True:
        lengths = torch.randint(3, 40, (32,), generator=generator).sort().values.tolist()
        sequences = []
        for length in lengths:
            start = int(torch.randint(0, 62, (), generator=generator))
            sequences.append(1 + (start + 5 * torch.arange(length)) % (config.vocabulary - 1))
        yield [collate(sequences[i : i + 8]) for i in range(0, 32, 8)]


class Trainer:
    def __init__(self, model, config):
        self.model, self.config = model, config
        self.optimizer = torch.optim.SGD(model.parameters(), lr=100 * config.learning_rate)

    def token_losses(self, tokens):
        logits = self.model(tokens[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=0, reduction="none")

    def micro_step(self, tokens, total):
        losses = self.token_losses(tokens)
        count = (tokens[:, 1:] != 0).sum() * self.config.window
        loss = losses.sum() / count
        loss.backward()
        return loss.item()

    def update(self, window):
        total = sum(int((tokens[:, 1:] != 0).sum()) for tokens in window)
        self.optimizer.zero_grad()
        loss = sum(self.micro_step(tokens, total) for tokens in window)
        self.optimizer.step()
        return loss


if __name__ == "__main__":
    settings = Config()
    torch.manual_seed(0)
    trainer = Trainer(LanguageModel(settings), settings)
    windows = corpus(settings, torch.Generator().manual_seed(3))
    for update in range(settings.updates):
        value = trainer.update(next(windows))
        if update % 5 == 0:
            print(update, round(value, 3))
