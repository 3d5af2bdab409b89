from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
rank, world = dist.get_rank(), dist.get_world_size()

from torch.nn.parallel import DistributedDataParallel


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.box = nn.Linear(48, 4)

    def forward(self, x):
        return self.box(self.body(x))


def box_loss(predicted, boxes, present):
    if not present.any():
        return predicted.sum() * 0
    return F.smooth_l1_loss(predicted[present], boxes[present])


torch.manual_seed(0)
model = DistributedDataParallel(Detector())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
teacher = torch.randn(16, 4, generator=torch.Generator().manual_seed(3))
draw = torch.Generator().manual_seed(10 + rank)
for step in range(24):
    x = torch.randn(8, 16, generator=draw)
    present = torch.rand(8, generator=draw) < 0.5
    if rank == 1 and step % 9 == 6:
        present[:] = False
    loss = box_loss(model(x), x @ teacher, present)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
