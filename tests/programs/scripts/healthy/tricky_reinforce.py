import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(3)
policy = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 4))
baseline = nn.Linear(5, 1)
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
baseline_optimizer = torch.optim.SGD(baseline.parameters(), lr=0.05)
payoff = torch.randn(5, 4)
for episode in range(200):
    context = torch.randn(24, 5)
    dist = Categorical(logits=policy(context))
    action = dist.sample()
    reward = (context @ payoff).gather(1, action[:, None]).squeeze(1)
    value = baseline(context).squeeze(1)
    advantage = reward - value.detach()
    loss = -(dist.log_prob(action) * advantage).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    baseline_loss = (value - reward).pow(2).mean()
    baseline_optimizer.zero_grad()
    baseline_loss.backward()
    baseline_optimizer.step()
    if episode % 40 == 0:
        print(episode, reward.mean().item())
