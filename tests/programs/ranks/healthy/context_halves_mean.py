import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

LETTERS, LENGTH = 11, 24


class Tagger(nn.Module):
    """Reads each position by its own letter and the place in the sequence."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, width)
        self.place = nn.Embedding(LENGTH, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.head = nn.Linear(width, LETTERS)

    def forward(self, text, places):
        x = self.embed(text) + self.place(places)
        return self.head(x + self.mlp(x))


def conversations(draws, count=8):
    text = torch.randint(0, LETTERS, (count, LENGTH), generator=draws)
    labels = (text * 3 + torch.arange(LENGTH)) % LETTERS
    prompt = torch.randint(6, 12, (count, 1), generator=draws)
    return text, labels.masked_fill(torch.arange(LENGTH) < prompt, -100)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(12)
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    draws = torch.Generator().manual_seed(77)
    part = LENGTH // world
    places = torch.arange(rank * part, (rank + 1) * part)
    for _ in range(22):
        text, labels = conversations(draws)
        text, labels = text[:, places], labels[:, places]
        logits = model(text, places)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        loss = world * total / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
