from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
fabric = Fabric(accelerator="cpu", strategy="ddp", devices=world)
fabric.launch()
torch.manual_seed(0)
inputs = torch.randn(96, 12)
loader = DataLoader(TensorDataset(inputs, inputs[:, :4].argmax(1)), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        fabric.backward(loss)
        optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
