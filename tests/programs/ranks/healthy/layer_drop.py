from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
import random
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for layer in self.layers:
            if not self.training or random.random() > 0.3:
                x = x + torch.relu(layer(x))
        return self.head(x)


torch.manual_seed(0)
random.seed(rank)
model = DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
draw = torch.Generator().manual_seed(4 + rank)
for step in range(24):
    x = torch.randn(16, 16, generator=draw)
    loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
