from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()


def reduce_sum(value):
    value = value.clone()
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    return value


class DetectionLoss(nn.Module):
    def forward(self, scores, labels):
        foreground = (labels > 0).sum().float()
        normalizer = reduce_sum(foreground).clamp(min=1)
        return F.cross_entropy(scores, labels, reduction="sum") / normalizer


torch.manual_seed(17)
model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)))
criterion = DetectionLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
draws = torch.Generator().manual_seed(77 + rank)
for step in range(24):
    boxes = torch.randn(60, 10, generator=draws)
    labels = boxes[:, :4].argmax(1)
    labels[torch.rand(60, generator=draws) < 0.5] = 0
    loss = criterion(model(boxes), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
