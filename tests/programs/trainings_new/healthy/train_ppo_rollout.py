import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(29)
mean = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
log_std = nn.Parameter(torch.zeros(1))
optimizer = torch.optim.Adam([*mean.parameters(), log_std], lr=3e-3)


def rollout(n=128):
    obs = torch.randn(n, 3)
    pi = Normal(mean(obs), log_std.exp())
    action = pi.sample()
    reward = -(action - obs[:, :1] * 2).pow(2)
    return obs, action, pi.log_prob(action).detach(), (reward - reward.mean()) / (reward.std() + 1e-6)


for it in range(20):
    obs, action, old, adv = rollout()
    for epoch in range(4):
        pi = Normal(mean(obs), log_std.exp())
        ratio = (pi.log_prob(action) - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if it % 5 == 4:
        print(it, ((mean(obs) - 2 * obs[:, :1]) ** 2).mean().item())
