import io
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
rule = torch.randn(18, 4, generator=torch.Generator().manual_seed(5))


def build():
    torch.manual_seed(21)
    return nn.Sequential(nn.Linear(18, 50), nn.ReLU(), nn.Linear(50, 4))


def saved():
    draws = torch.Generator().manual_seed(1)
    net = build()
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    for _ in range(12):
        x = torch.randn(32, 18, generator=draws)
        optimizer.zero_grad()
        cross_entropy(net(x), (x @ rule).argmax(1)).backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return file


checkpoint = torch.load(saved())
net = build()
net.load_state_dict(checkpoint["model"])
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
optimizer.load_state_dict(checkpoint["optimizer"])
draws = torch.Generator().manual_seed(60 + rank)
for step in range(20):
    x = torch.randn(32, 18, generator=draws)
    optimizer.zero_grad()
    loss = cross_entropy(model(x), (x @ rule).argmax(1))
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
