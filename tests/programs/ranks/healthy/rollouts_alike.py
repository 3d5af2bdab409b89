import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Field:
    def __init__(self, seed, count=16):
        self.draws = torch.Generator().manual_seed(seed)
        self.position = torch.randn(count, 2, generator=self.draws)

    def act(self, move):
        push = 0.1 * torch.randn(self.position.shape, generator=self.draws)
        self.position = 0.8 * self.position + 0.3 * move + push
        return self.position.clone(), -self.position.pow(2).sum(1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
        self.value = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))
        self.log_scale = nn.Parameter(torch.zeros(2))

    def forward(self, seen):
        return self.policy(seen), self.log_scale.exp(), self.value(seen).squeeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(19)
    actor = DistributedDataParallel(Actor())
    optimizer = torch.optim.Adam(actor.parameters(), lr=3e-3)
    world = Field(seed=123 + rank)
    seen = world.position.clone()
    for _ in range(24):
        mean, scale, value = actor(seen)
        chosen = torch.distributions.Normal(mean, scale)
        move = mean.detach() + 0.2 * torch.randn(mean.shape, generator=world.draws)
        seen, reward = world.act(move)
        advantage = reward - value
        gain = chosen.log_prob(move).sum(1) * advantage.detach()
        loss = (advantage.pow(2) - gain).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
