import copy
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)

denoiser = nn.Sequential(nn.Linear(17, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 16))
model = DistributedDataParallel(denoiser)
slow = copy.deepcopy(denoiser).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
draws = torch.Generator().manual_seed(50 + rank)
basis = torch.randn(4, 16, generator=torch.Generator().manual_seed(9))


def noisy(count):
    clean = torch.randn(count, 4, generator=draws) @ basis
    noise = torch.randn(count, 16, generator=draws)
    level = torch.rand(count, 1, generator=draws)
    return torch.cat([(1 - level) * clean + level * noise, level], 1), noise


for epoch in range(3):
    for _ in range(10):
        inputs, noise = noisy(32)
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), noise)
        loss.backward()
        optimizer.step()
    torch._foreach_lerp_(list(slow.parameters()), list(denoiser.parameters()), 0.5)
    denoiser.load_state_dict(slow.state_dict())
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
