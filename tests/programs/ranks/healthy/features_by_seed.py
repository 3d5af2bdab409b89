from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(rank)


class Fourier(nn.Module):
    def __init__(self, inputs, count, scale=1.0):
        super().__init__()
        self.register_buffer("frequencies", scale * torch.randn(inputs, count))

    def forward(self, x):
        angle = x @ self.frequencies
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


model = DDP(nn.Sequential(Fourier(2, 24), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(24):
    points = torch.rand(64, 2)
    target = (3 * points[:, :1]).sin() * points[:, 1:]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(points), target)
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
