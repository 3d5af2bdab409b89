import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def send_half(group, bucket):
    small = bucket.buffer().to(torch.bfloat16)
    work = dist.all_reduce(small, group=group, async_op=True).get_future()

    def back(done):
        full = bucket.buffer()
        full.copy_(done.value()[0])
        return full

    return work.then(back)


class Graph(nn.Module):
    def __init__(self, width=18):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 1)

    def forward(self, nodes, adjacent):
        hidden = self.first(nodes)
        for layer in self.inner:
            hidden = hidden + torch.relu(layer(adjacent @ hidden))
        return self.last(hidden).mean(1).squeeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(4)
    model = DistributedDataParallel(Graph())
    model.register_comm_hook(dist.group.WORLD, send_half)
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-3)
    draws = torch.Generator().manual_seed(200 + rank)
    for _ in range(20):
        nodes = torch.randn(10, 6, 4, generator=draws)
        adjacent = (torch.rand(10, 6, 6, generator=draws) < 0.4).float() / 3
        target = nodes.sum((1, 2)).tanh()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(nodes, adjacent), target)
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
