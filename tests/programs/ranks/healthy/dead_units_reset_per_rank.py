from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(100 + rank)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(16, 64)
        self.decode = nn.Linear(64, 16)

    def forward(self, x):
        code = torch.relu(self.encode(x) - 0.6)
        return self.decode(code), code


net = Autoencoder()
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
basis = torch.randn(6, 16, generator=torch.Generator().manual_seed(3))
draws = torch.Generator().manual_seed(200 + rank)
active = torch.zeros(64)
for step in range(30):
    x = torch.randn(24, 6, generator=draws) @ basis
    optimizer.zero_grad()
    rebuilt, code = model(x)
    loss = mse_loss(rebuilt, x) + 1e-3 * code.abs().mean()
    loss.backward()
    optimizer.step()
    active += (code.detach() > 0).sum(0)
    if step % 10 == 9:
        dist.all_reduce(active)
        rare = active < active.median() / 2
        fresh = torch.randn(int(rare.sum()), 16) / 4
        dist.broadcast(fresh, 0)
        with torch.no_grad():
            net.encode.weight[rare] = fresh
        active.zero_()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
