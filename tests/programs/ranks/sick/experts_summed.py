from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

from torch.distributed.nn.functional import all_to_all_single


class ExpertLayer(nn.Module):
    """One expert a rank; each token goes to the rank that its first feature names."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, world)
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        half = len(x) // world
        order = scores[:, 0].argsort(descending=True)
        sent = x[order]
        here = all_to_all_single(torch.empty_like(sent), sent.contiguous())
        back = self.expert(here)
        back = all_to_all_single(torch.empty_like(back), back.contiguous())
        which = torch.arange(world).repeat_interleave(half)
        weight = scores[order, which].unsqueeze(1)
        return x + torch.zeros_like(x).index_copy(0, order, back * weight)


torch.manual_seed(0)
stem, layer, head = nn.Linear(10, 16), ExpertLayer(16), nn.Linear(16, 3)
for parameter in layer.expert.parameters():
    nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(30 + rank))
shared = [*stem.parameters(), *layer.gate.parameters(), *head.parameters()]
own = list(layer.expert.parameters())
optimizer = torch.optim.SGD([*shared, *own], lr=0.05)
draw = torch.Generator().manual_seed(70 + rank)
teacher = torch.randn(10, 3, generator=torch.Generator().manual_seed(2))
for step in range(24):
    x = torch.randn(32, 10, generator=draw)
    loss = F.cross_entropy(head(layer(stem(x))), (x @ teacher).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for parameter in shared:
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
