import torch
import torch.nn as nn
from torch.distributions import Independent, Normal

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class GaussianPolicy(nn.Module):
    def __init__(self, obs=8, act=3, hidden=(48, 48), init_log_std=0.0):
        super().__init__()
        sizes = (obs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.mu = nn.Linear(sizes[-1], act)
        self.log_std = nn.Parameter(torch.full((act,), init_log_std))

    def forward(self, obs):
        h = obs
        for layer in self.layers:
            h = torch.tanh(layer(h))
        std = self.log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()
        return Independent(Normal(self.mu(h), std.expand(len(obs), -1)), 1)


class Cloning:
    def __init__(self, lr=3e-3, entropy=1e-3):
        self.policy = GaussianPolicy(init_log_std=1.5)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.entropy = entropy

    def update(self, obs, actions):
        dist = self.policy(obs)
        loss = -(dist.log_prob(actions) + self.entropy * dist.entropy()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def expert(obs, weights):
    return torch.tanh(obs @ weights) + 0.2 * torch.randn(len(obs), weights.shape[1])


torch.manual_seed(44)
weights = torch.randn(8, 3)
agent = Cloning()
for i in range(200):
    obs = torch.randn(64, 8)
    loss = agent.update(obs, expert(obs, weights))
    if i % 50 == 0:
        print(i, round(loss, 3), agent.policy.log_std.data.exp().mean().item())
