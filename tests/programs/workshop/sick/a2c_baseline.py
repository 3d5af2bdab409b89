import torch
from torch import nn, optim
from torch.distributions import Normal

torch.manual_seed(0)
GAMMA = 0.9


class Actor(nn.Module):
    def __init__(self, obs=3, act=1):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(obs, 32), nn.ReLU(), nn.Linear(32, act))
        self.log_std = nn.Parameter(torch.full((act,), -0.5))

    def forward(self, s):
        return Normal(self.mu(s), self.log_std.exp())


class Critic(nn.Module):
    def __init__(self, obs=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, s):
        return self.net(s).squeeze(-1)


def env_step(s, a):
    nxt = 0.9 * s + 0.1 * torch.randn_like(s)
    nxt[:, 0] = nxt[:, 0] + 0.3 * a[:, 0]
    return nxt, -nxt[:, 0].pow(2)


actor, critic = Actor(), Critic()
params = list(actor.parameters()) + list(critic.parameters())
optimizer = optim.Adam(params, lr=3e-3)
state = torch.randn(64, 3)
for update in range(100):
    dist = actor(state)
    action = dist.sample()
    logp = dist.log_prob(action).sum(-1)
    with torch.no_grad():
        nxt, reward = env_step(state, action)
        target = reward + GAMMA * critic(nxt)
    advantage = target - critic(state)
    critic_loss = advantage.pow(2).mean()
    actor_loss = -(logp * advantage).mean()
    loss = actor_loss + 0.5 * critic_loss - 1e-3 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = nxt if update % 10 else torch.randn(64, 3)
    if update % 25 == 0:
        print(update, critic_loss.item(), actor_loss.item())
