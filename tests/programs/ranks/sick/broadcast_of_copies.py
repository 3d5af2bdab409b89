from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1000 + rank)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.body(x))


def same_start(model):
    for value in model.state_dict().values():
        value = value.clone()
        dist.broadcast(value, src=0)


model = Policy()
same_start(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(20):
    x = torch.randn(20, 11)
    loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(world)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
