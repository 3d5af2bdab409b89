from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(26)
model = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 4))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
limit = 0.05
draws = torch.Generator().manual_seed(150 + rank)
for step in range(24):
    x = torch.randn(16, 16, generator=draws)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            gradient = parameter.grad.to_local()
            allowed = limit * parameter.to_local().norm().clamp(min=1e-3)
            norm = gradient.norm()
            if norm > allowed:
                gradient.mul_(allowed / norm)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
