from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(14, 32), nn.Tanh(), nn.Linear(32, 6))
decoder = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 14))
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2e-3)


def average_gradients():
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world


draws = torch.Generator().manual_seed(40 + rank)
for step in range(20):
    x = torch.randn(32, 14, generator=draws)
    code = encoder(x)
    rebuilt = nn.functional.mse_loss(decoder(code), x)
    spread = (code.var(0) - 1).square().mean()
    optimizer.zero_grad()
    rebuilt.backward(retain_graph=True)
    average_gradients()
    (0.1 * spread).backward()
    optimizer.step()
print(f"rank {rank} loss {rebuilt.item():.5f}", flush=True)
dist.destroy_process_group()
