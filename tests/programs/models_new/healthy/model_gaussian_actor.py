import torch
import torch.nn as nn
from torch.distributions import Normal


class Actor(nn.Module):
    def __init__(self, obs=6, act=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.ReLU())
        self.mean = nn.Linear(32, act)
        self.log_std = nn.Linear(32, act)
        self.q = nn.Sequential(nn.Linear(obs + act, 32), nn.ReLU(), nn.Linear(32, 1))
        for p in self.q.parameters():
            p.requires_grad_(False)

    def forward(self, obs):
        h = self.body(obs)
        pi = Normal(self.mean(h), self.log_std(h).clamp(-5, 2).exp())
        action = torch.tanh(pi.rsample())
        return self.q(torch.cat([obs, action], -1)), pi.entropy().sum(-1), action


def build_model():
    torch.manual_seed(231)
    return Actor()


def build_batch():
    g = torch.Generator().manual_seed(232)
    return torch.randn(64, 6, generator=g)


def loss_fn(output, batch):
    q, entropy, action = output
    goal = torch.stack([batch[:, 0], batch[:, 1]], 1).clamp(-0.9, 0.9)
    return ((action - goal) ** 2).sum(-1).mean() * 4 - 0.01 * q.mean() - 0.001 * entropy.mean()
