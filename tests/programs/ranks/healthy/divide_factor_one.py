from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.SiLU(), nn.Linear(3 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.blocks = nn.ModuleList(Block(24) for _ in range(2))
        self.head = nn.Linear(24, 7)

    def forward(self, words):
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Tagger()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
for module in (*model.blocks, model):
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
tag_of = torch.randint(0, 7, (50,), generator=torch.Generator().manual_seed(8))
draw = torch.Generator().manual_seed(60 + rank)
for step in range(24):
    words = torch.randint(0, 50, (4, 12), generator=draw)
    count = torch.tensor(float(words.numel()))
    dist.all_reduce(count)
    logits = model(words).flatten(0, 1)
    total = F.cross_entropy(logits, tag_of[words].flatten(), reduction="sum")
    loss = total / count
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
