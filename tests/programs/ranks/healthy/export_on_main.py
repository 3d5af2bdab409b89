import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy


class Character(nn.Module):
    def __init__(self, letters=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.mix = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 3, padding=2), nn.ReLU()) for _ in range(2)
        )
        self.next = nn.Linear(width, letters)

    def forward(self, text):
        x = self.embed(text).transpose(1, 2)
        for layer in self.mix:
            x = x + layer(x)[..., : x.shape[-1]]
        return self.next(x.transpose(1, 2))


def largest_weight(model):
    return max(one.full_tensor().abs().max().item() for one in model.parameters())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = int(os.environ["RANK"])
    torch.manual_seed(2)
    model = Character()
    for layer in model.mix:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draws = torch.Generator().manual_seed(10 + rank)
    for step in range(16):
        text = torch.randint(0, 20, (6, 13), generator=draws)
        optimizer.zero_grad()
        loss = cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if step == 9:
            print(f"largest {largest_weight(model):.3f}", flush=True)
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
