"""Gradient accumulation normalized by the tokens of all micro batches, with a short last group."""

from itertools import islice

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, PAD = 30, 0


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(dim, 4)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def micro_batches(count, seed=0):
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        lengths = torch.randint(2, 14, (6, 1), generator=g)
        ids = torch.randint(1, VOCAB, (6, 14), generator=g)
        inside = torch.arange(14)[None] < lengths
        ids = torch.where(inside, ids, PAD)
        yield ids, torch.where(inside, ids % 4, -100)


def main(group=4):
    torch.manual_seed(9)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(4):
        stream = micro_batches(10, seed=epoch)
        while chunk := list(islice(stream, group)):
            tokens = sum((labels != -100).sum() for _, labels in chunk)
            running = 0.0
            for ids, labels in chunk:
                logits = model(ids).flatten(0, 1)
                loss = F.cross_entropy(logits, labels.flatten(), reduction="sum") / tokens
                loss.backward()
                running += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: {running:.4f}")


main()
