from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class RunningNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("square", torch.ones(size))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                mean, square = x.mean(0), x.pow(2).mean(0)
                dist.all_reduce(mean)
                dist.all_reduce(square)
                mean, square = mean / world, square / world
                self.mean.lerp_(mean, 0.1)
                self.square.lerp_(square, 0.1)
        return (x - self.mean) / (self.square - self.mean.pow(2)).clamp_min(1e-4).sqrt()


torch.manual_seed(0)
policy = nn.Sequential(RunningNorm(6), nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
draw = torch.Generator().manual_seed(25 + rank)
for step in range(24):
    observations = torch.randn(64, 6, generator=draw) * (1 + rank) + rank
    chances = torch.distributions.Categorical(logits=policy(observations))
    actions = torch.multinomial(chances.probs.detach(), 1, generator=draw)[:, 0]
    reward = (actions == observations[:, :3].argmax(1)).float()
    loss = -(chances.log_prob(actions) * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in policy.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
