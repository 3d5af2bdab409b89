import random
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank = dist.get_rank()
torch.manual_seed(3)
random.seed(3 + rank)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 24)
        self.deep = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))
        self.wide = nn.Linear(24, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        branch = self.deep if random.random() < 0.5 else self.wide
        return self.head(x + branch(x))


model = DDP(Mixture())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
draws = torch.Generator().manual_seed(50 + rank)
for step in range(24):
    x = torch.randn(16, 10, generator=draws)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
