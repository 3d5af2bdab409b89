from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class ParallelMLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width // world)
        self.down = nn.Linear(4 * width // world, width, bias=False)

    def forward(self, x):
        return Reduce.apply(self.down(F.gelu(self.up(Copy.apply(x)))))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.mlp = ParallelMLP(width)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.drop(self.mlp(self.norm(x)))
        return self.head(x)


torch.manual_seed(1)
model = Net()
for parameter in (*model.mlp.up.parameters(), model.mlp.down.weight):
    nn.init.normal_(parameter, std=0.05, generator=torch.Generator().manual_seed(rank))
torch.manual_seed(100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
draw = torch.Generator().manual_seed(5)
for step in range(24):
    x = torch.randn(16, 8, generator=draw)
    y = x[:, :1] * x[:, 1:2]
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
