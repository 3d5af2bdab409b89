from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(18, 8)
        self.passage = nn.Linear(18, 8)

    def forward(self, q, p):
        return F.normalize(self.query(q), dim=1), F.normalize(self.passage(p), dim=1)


torch.manual_seed(0)
model = DistributedDataParallel(TwoTowers())
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
draw = torch.Generator().manual_seed(60 + rank)
for step in range(24):
    topic = torch.randn(16, 18, generator=draw)
    q, p = model(topic + 0.3 * torch.randn(16, 18, generator=draw), topic)
    scores = q @ p.T / 0.1
    loss = F.cross_entropy(scores, torch.arange(16))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
