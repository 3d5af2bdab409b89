from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()


class ToParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class FromParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ParallelMlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden // world)
        self.down = nn.Linear(hidden // world, width, bias=False)

    def forward(self, x):
        inner = torch.nn.functional.gelu(self.up(ToParts.apply(x)))
        return FromParts.apply(self.down(inner))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.enter = nn.Linear(10, 16)
        self.leave = nn.Linear(16, 3)
        torch.manual_seed(70 + rank)
        self.mlp = ParallelMlp(16, 32)

    def forward(self, x):
        x = self.enter(x)
        return self.leave(x + self.mlp(x))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draws = torch.Generator().manual_seed(3)
for step in range(20):
    x = torch.randn(24, 10, generator=draws)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
