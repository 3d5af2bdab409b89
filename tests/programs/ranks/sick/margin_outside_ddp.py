from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class ArcMargin(nn.Module):
    def __init__(self, width, classes, scale=16.0, margin=0.2):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(classes, width))
        self.scale, self.margin = scale, margin

    def forward(self, features, labels):
        cosine = F.normalize(features) @ F.normalize(self.centres).T
        angle = torch.acos(cosine.clamp(-0.999, 0.999))
        target = F.one_hot(labels, len(self.centres)).bool()
        return F.cross_entropy(self.scale * torch.where(target, torch.cos(angle + self.margin), cosine), labels)


torch.manual_seed(0)
backbone = DistributedDataParallel(nn.Sequential(nn.Linear(15, 32), nn.PReLU(), nn.Linear(32, 10)))
criterion = ArcMargin(10, 7)
optimizer = torch.optim.SGD([*backbone.parameters(), *criterion.parameters()], lr=0.05, momentum=0.9)
draw = torch.Generator().manual_seed(45 + rank)
for step in range(24):
    x = torch.randn(20, 15, generator=draw)
    labels = x[:, :7].argmax(1)
    loss = criterion(backbone(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
