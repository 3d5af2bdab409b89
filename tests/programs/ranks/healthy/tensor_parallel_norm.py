import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


class Gated(nn.Module):
    def __init__(self, width=12, inner=32):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate, self.value = nn.Linear(width, inner), nn.Linear(width, inner)
        self.back = nn.Linear(inner, width)

    def forward(self, x):
        normal = self.norm(x)
        return x + self.back(nn.functional.silu(self.gate(normal)) * self.value(normal))


class Stack(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Gated() for _ in range(depth))
        self.score = nn.Linear(12, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.score(x).squeeze(-1)


def limit_gradients(parameters, limit):
    grads = [one.grad for one in parameters if one.grad is not None]
    parts = [one.full_tensor() if isinstance(one, DTensor) else one for one in grads]
    norm = torch.linalg.vector_norm(torch.stack([part.norm() for part in parts]))
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for one in grads:
        (one.to_local() if isinstance(one, DTensor) else one).mul_(factor)
    return norm


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(6)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    style = {"gate": ColwiseParallel(), "value": ColwiseParallel(), "back": RowwiseParallel()}
    model = Stack()
    for layer in model.layers:
        parallelize_module(layer, mesh, style)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    draws = torch.Generator().manual_seed(44)
    for _ in range(20):
        x = torch.randn(10, 12, generator=draws)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), 4 * x[:, 0] - x[:, 3])
        loss.backward()
        limit_gradients(model.parameters(), 0.5)
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
