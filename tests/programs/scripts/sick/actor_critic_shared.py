import torch
import torch.nn as nn
from torch.distributions import Categorical


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 1))

    def forward(self, x):
        return self.v(x).squeeze(-1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))

    def forward(self, x):
        return Categorical(logits=self.pi(x))


class Bandits:
    def __init__(self, n):
        self.n, self.w = n, torch.randn(6, 3)
        self.x = torch.randn(n, 6)

    def step(self, action):
        reward = (self.x @ self.w).gather(1, action[:, None]).squeeze(1)
        self.x = 0.7 * self.x + 0.7 * torch.randn_like(self.x)
        return self.x, reward


torch.manual_seed(90)
actor, critic, env = Actor(), Critic(), Bandits(32)
optimizer = torch.optim.RMSprop([{"params": actor.parameters(), "lr": 1e-3}, {"params": critic.parameters(), "lr": 3e-3}], alpha=0.99)
x, gamma = env.x, 0.8
for update in range(100):
    logps, values, rewards, entropies = [], [], [], []
    for _ in range(5):
        dist = actor(x)
        action = dist.sample()
        logps.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(critic(x))
        x, reward = env.step(action)
        rewards.append(reward)
    with torch.no_grad():
        ret = critic(x)
    returns = []
    for reward in reversed(rewards):
        ret = reward + gamma * ret
        returns.insert(0, ret)
    advantage = torch.stack(returns) - torch.stack(values)
    policy_loss = -(torch.stack(logps) * advantage).mean()
    value_loss = advantage.pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * torch.stack(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
    optimizer.step()
    if update % 20 == 0:
        print(update, torch.stack(rewards).mean().item())
