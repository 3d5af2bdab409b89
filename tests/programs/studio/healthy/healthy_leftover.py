"""Token-weighted gradient accumulation with a last partial window."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    def __init__(self, vocab=30, dim=24, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def corpus(batches, size=8):
    out = []
    for _ in range(batches):
        length = int(torch.randint(5, 14, ()))
        ids = torch.randint(1, 30, (size, length))
        tags = (ids + ids.roll(1, 1)) % 4
        cut = torch.randint(2, length + 1, (size, 1))
        pad = torch.arange(length) >= cut
        out.append((ids.masked_fill(pad, 0), tags.masked_fill(pad, -100)))
    return out


def windows(batches, size):
    for start in range(0, len(batches), size):
        yield batches[start : start + size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    batches = corpus(22)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    updates = -(-len(batches) // args.accumulate) * args.epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=updates)
    for epoch in range(args.epochs):
        for window in windows(batches, args.accumulate):
            tokens = sum(int((tags != -100).sum()) for _, tags in window)
            total = 0.0
            for ids, tags in window:
                loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten(), ignore_index=-100, reduction="sum")
                (loss / tokens).backward()
                total += loss.item() / tokens
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        print(epoch, total)


if __name__ == "__main__":
    main()
