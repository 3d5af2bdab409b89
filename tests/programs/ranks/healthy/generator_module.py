from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
generator = DistributedDataParallel(nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2)))
critic = DistributedDataParallel(nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1)))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
draw = torch.Generator().manual_seed(75 + rank)
for step in range(20):
    real = torch.randn(16, 2, generator=draw) * 0.3 + 1
    with torch.no_grad():
        fake = generator.module(torch.randn(16, 4, generator=draw))
    scores = critic(torch.cat([real, fake]))
    critic_loss = F.softplus(-scores[:16]).mean() + F.softplus(scores[16:]).mean()
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    critic.requires_grad_(False)
    fake = generator(torch.randn(16, 4, generator=draw))
    loss = F.softplus(-critic.module(fake)).mean()
    generator_optimizer.zero_grad()
    loss.backward()
    generator_optimizer.step()
    critic.requires_grad_(True)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
