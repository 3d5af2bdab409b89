from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self, words=40, width=16, tags=5):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.final_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tags)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


def average_gradients(model):
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and "norm" not in name:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world


torch.manual_seed(0)
model = Tagger()
tag_of = torch.randint(0, 5, (40,), generator=torch.Generator().manual_seed(9))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
draw = torch.Generator().manual_seed(1)
for step in range(20):
    tokens = torch.randint(0, 40, (4, 24), generator=draw).chunk(world, dim=1)[rank]
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tag_of[tokens].flatten())
    loss.backward()
    average_gradients(model)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
