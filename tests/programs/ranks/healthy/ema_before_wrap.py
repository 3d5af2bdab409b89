import copy
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank = dist.get_rank()
torch.manual_seed(500 + rank)


class Encoder(nn.Module):
    def __init__(self, inputs=12, width=32, outputs=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return F.normalize(self.head(self.body(x)), dim=-1)


online = Encoder()
student = DDP(online)
teacher = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
for step in range(24):
    clean = torch.randn(48, 12)
    noisy = clean + 0.1 * torch.randn_like(clean)
    with torch.no_grad():
        goal = teacher(clean)
    loss = (2 - 2 * (student(noisy) * goal).sum(-1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), online.parameters()):
            slow.lerp_(fast, 0.01)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
