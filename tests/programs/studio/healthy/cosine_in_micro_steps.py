"""Language-model pretraining with a cosine schedule and gradient accumulation."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR


class CharModel(nn.Module):
    def __init__(self, vocab, dim=32, context=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(context * dim, 64)
        self.head = nn.Linear(64, vocab)

    def forward(self, ids):
        return self.head(F.gelu(self.mix(self.embed(ids).flatten(1))))


def corpus(length, vocab):
    table = torch.randint(0, vocab, (vocab,))
    ids = [0]
    for _ in range(length):
        jump = int(torch.randint(0, 3, ()))
        ids.append(int((table[ids[-1]] + jump) % vocab))
    return torch.tensor(ids)


def batches(ids, size, context):
    while True:
        at = torch.randint(0, len(ids) - context - 1, (size,))
        yield torch.stack([ids[i : i + context] for i in at]), ids[at + context]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-updates", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = CharModel(30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = CosineAnnealingLR(optimizer, T_max=args.max_updates)
    stream = batches(corpus(2000, 30), 16, 8)
    for micro in range(args.max_updates * args.accumulate):
        x, y = next(stream)
        loss = F.cross_entropy(model(x), y)
        (loss / args.accumulate).backward()
        if (micro + 1) % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        if micro % 40 == 0:
            print(micro, round(loss.item(), 4), scheduler.get_last_lr())


if __name__ == "__main__":
    main()
