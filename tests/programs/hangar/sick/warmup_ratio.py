from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Schedule:
    warmup: int
    total: int
    floor: float = 0.1

    def __call__(self, step):
        if step < self.warmup:
            return (step + 1) // (self.warmup + 1)
        left = (self.total - step) / max(1, self.total - self.warmup)
        return max(self.floor, left)


class EntityTagger(nn.Module):
    def __init__(self, words=150, tags=5, width=32):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.output = nn.Linear(2 * width, tags)

    def forward(self, words, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(words), lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=words.size(1))
        return self.output(hidden)


def sentences(generator, count=24, length=15):
    words = torch.randint(1, 150, (count, length), generator=generator)
    tags = (words // 30 + words.roll(1, 1) % 2) % 5
    lengths = torch.randint(5, length + 1, (count,), generator=generator)
    tags = tags.masked_fill(torch.arange(length) >= lengths.unsqueeze(1), -100)
    return words, lengths, tags


def train(steps=60, warmup=40):
    torch.manual_seed(14)
    generator = torch.Generator().manual_seed(14)
    model = EntityTagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, Schedule(warmup, steps))
    for step in range(steps):
        words, lengths, tags = sentences(generator)
        loss = F.cross_entropy(model(words, lengths).flatten(0, 1), tags.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    train()
