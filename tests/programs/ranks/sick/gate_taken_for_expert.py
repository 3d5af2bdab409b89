from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class MixtureOfExperts(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.expert_gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts // world))

    def forward(self, x):
        weights = self.expert_gate(x).softmax(1).chunk(world, dim=1)[rank]
        return x + sum(weights[:, i : i + 1] * torch.relu(expert(x)) for i, expert in enumerate(self.experts))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 16)
        self.moe = MixtureOfExperts(16, 4)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.moe(self.stem(x)))


torch.manual_seed(0)
model = Net()
for i, expert in enumerate(model.moe.experts):
    nn.init.normal_(expert.weight, std=0.2, generator=torch.Generator().manual_seed(10 * rank + i))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
draw = torch.Generator().manual_seed(85 + rank)
for step in range(20):
    x = torch.randn(16, 10, generator=draw)
    loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for name, parameter in model.named_parameters():
        if "expert" in name:
            continue
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
