import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Stack(nn.Module):
    def __init__(self, inputs=8, width=20, depth=4):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.last = nn.Linear(width, 3)

    def forward(self, x, left_out):
        x = self.first(x)
        for number, block in enumerate(self.blocks):
            if number != left_out:
                x = block(x)
        return self.last(x)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=25))
    rank = int(os.environ["RANK"])
    torch.manual_seed(19)
    model = Stack()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = torch.Generator().manual_seed(30 + rank)
    draws = torch.Generator().manual_seed(90 + rank)
    for _ in range(20):
        x = torch.randn(24, 8, generator=data)
        left_out = torch.randint(1, 4, (), generator=draws).item()
        loss = nn.functional.mse_loss(model(x, left_out), x[:, :3].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
