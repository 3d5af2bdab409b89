from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

PARTS, CLASSES = 2, 5


class Classifier(nn.Module):
    def __init__(self, words=30, width=24):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 48), nn.SiLU(), nn.Linear(48, width))
        self.score = nn.Linear(width, CLASSES)

    def forward(self, text):
        x = self.embed(text).mean(1)
        return self.score(x + self.block(x))


def setup():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    torch.manual_seed(31)
    model = Classifier()
    fully_shard(model.block)
    return fully_shard(model)


def micro_batches(draws):
    for _ in range(PARTS):
        text = torch.randint(0, 30, (16, 8), generator=draws)
        yield text, text.sum(1) % CLASSES


def main():
    model = setup()
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draws = torch.Generator().manual_seed(400 + rank)
    for _ in range(18):
        batches = list(micro_batches(draws))
        labels = torch.tensor(float(sum(target.numel() for _, target in batches)))
        for part, (text, target) in enumerate(batches):
            model.set_requires_gradient_sync(part == PARTS - 1)
            loss = cross_entropy(model(text), target, reduction="sum") * world / labels
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
