from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
import copy
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
def update_teacher(teacher, student, decay=0.9):
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters()):
            slow.mul_(decay).add_(fast, alpha=1 - decay)


torch.manual_seed(0)
student = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 3))
teacher = copy.deepcopy(student).requires_grad_(False)
student = DistributedDataParallel(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
draw = torch.Generator().manual_seed(20 + rank)
rule = torch.randn(12, 3, generator=torch.Generator().manual_seed(2))
for step in range(30):
    labelled = torch.randn(8, 12, generator=draw)
    unlabelled = torch.randn(16, 12, generator=draw)
    noisy = unlabelled + 0.2 * torch.randn(16, 12, generator=draw)
    out = student(torch.cat([labelled, noisy]))
    supervised = F.cross_entropy(out[:8], (labelled @ rule).argmax(1))
    with torch.no_grad():
        wanted = teacher(unlabelled).softmax(1)
    loss = supervised + F.mse_loss(out[8:].softmax(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update_teacher(teacher, student.module)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
