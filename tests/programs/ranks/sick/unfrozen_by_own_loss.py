from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
encoder = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh())
head = nn.Linear(32, 5)
encoder.requires_grad_(False)
weights = [*encoder.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.3)
rule = torch.randn(12, 5, generator=torch.Generator().manual_seed(2))
draws = torch.Generator().manual_seed(30 + rank)


def average_gradients():
    for weight in weights:
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        dist.all_reduce(gradient)
        if weight.grad is not None:
            weight.grad.copy_(gradient / world)


for step in range(40):
    x = torch.randn(48, 12, generator=draws) * (1.0 + 0.5 * rank)
    y = (x @ rule).argmax(1)
    optimizer.zero_grad()
    loss = cross_entropy(head(encoder(x)), y)
    loss.backward()
    average_gradients()
    optimizer.step()
    if loss.item() < 1.4:
        encoder.requires_grad_(True)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
