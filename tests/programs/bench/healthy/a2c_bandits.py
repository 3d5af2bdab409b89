"""Advantage actor-critic for a contextual bandit."""

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

N_STATES, N_ACTIONS = 8, 4


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(N_STATES, 32), nn.Tanh(), nn.Linear(32, N_ACTIONS))

    def forward(self, state):
        return Categorical(logits=self.net(state))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(N_STATES, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, state):
        return self.net(state).squeeze(-1)


class Bandit:
    def __init__(self, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.means = torch.randn(N_STATES, N_ACTIONS, generator=g)

    def contexts(self, n):
        self.index = torch.randint(N_STATES, (n,))
        return F.one_hot(self.index, N_STATES).float()

    def pull(self, actions):
        return self.means[self.index, actions] + 0.1 * torch.randn(len(actions))


def main(iterations=50, batch=64):
    torch.manual_seed(3)
    env, actor, critic = Bandit(), Actor(), Critic()
    params = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(params, lr=1e-2)
    for it in range(iterations):
        state = env.contexts(batch)
        dist = actor(state)
        action = dist.sample()
        reward = env.pull(action)
        value = critic(state)
        advantage = reward - value
        policy_loss = -(dist.log_prob(action) * advantage.detach()).mean()
        value_loss = F.mse_loss(value, reward)
        loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            print(f"{it}: reward {reward.mean().item():.3f} value loss {value_loss.item():.3f}")


main()
