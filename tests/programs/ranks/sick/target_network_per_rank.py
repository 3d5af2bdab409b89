from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(500 + rank)


def features(depth):
    layers = [nn.Linear(8, 32), nn.LeakyReLU()]
    for _ in range(depth):
        layers += [nn.Linear(32, 32), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(32, 16))


target = features(1).requires_grad_(False)
predictor = DistributedDataParallel(features(2))
optimizer = torch.optim.Adam(predictor.parameters(), lr=2e-3)
for step in range(30):
    seen = torch.randn(32, 8)
    optimizer.zero_grad()
    loss = mse_loss(predictor(seen), target(seen))
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
