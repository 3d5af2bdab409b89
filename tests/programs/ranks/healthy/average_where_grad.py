from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(12, 16)
        self.image_adapter = nn.Linear(16, 16)
        self.text_adapter = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x, images):
        x = torch.relu(self.trunk(x))
        return self.head(self.image_adapter(x) if images else self.text_adapter(x))


def average(model):
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


torch.manual_seed(0)
model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
draw = torch.Generator().manual_seed(80 + rank)
for step in range(24):
    x = torch.randn(12, 12, generator=draw)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x, images=rank == 0), x[:, :3].argmax(1))
    loss.backward()
    average(model)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
