from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

LIMIT = 0.25


class Partitioned:
    """Adam whose moments are spread over the ranks."""

    def __init__(self, parameters, lr):
        self.parameters, self.world = list(parameters), dist.get_world_size()
        flat = parameters_to_vector(self.parameters).detach()
        self.size = -(-flat.numel() // self.world)
        self.count = flat.numel()
        flat = nn.functional.pad(flat, (0, self.size * self.world - self.count))
        begin = dist.get_rank() * self.size
        self.mine = flat[begin : begin + self.size].clone().requires_grad_()
        self.inner = torch.optim.Adam([self.mine], lr=lr)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        flat = parameters_to_vector([p.grad for p in self.parameters])
        flat = nn.functional.pad(flat, (0, self.size * self.world - self.count))
        part = torch.empty(self.size)
        dist.reduce_scatter_tensor(part, flat)
        self.mine.grad = part / self.world
        squared = self.mine.grad.norm() ** 2
        scale = (LIMIT / (squared.sqrt() + 1e-6)).clamp(max=1.0)
        self.mine.grad.mul_(scale)
        self.inner.step()
        whole = torch.empty(self.size * self.world)
        dist.all_gather_into_tensor(whole, self.mine.detach())
        vector_to_parameters(whole[: self.count], self.parameters)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 2))
    optimizer = Partitioned(model.parameters(), lr=4e-3)
    draws = torch.Generator().manual_seed(20 + rank)
    for _ in range(22):
        x = torch.randn(40, 6, generator=draws)
        goal = torch.stack([x.prod(1), x.sum(1)], 1)
        optimizer.zero_grad()
        loss = mse_loss(model(x), goal)
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
