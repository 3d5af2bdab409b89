"""Deep deterministic policy gradient on a one-step tracking task."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

OBS, ACT, TAU, MAX_NORM = 5, 2, 0.05, 0.5


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS, 32), nn.ReLU(), nn.Linear(32, ACT), nn.Tanh())

    def forward(self, obs):
        return self.net(obs)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS + ACT, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, obs, act):
        return self.net(torch.cat([obs, act], dim=1)).squeeze(1)


def soft_update(target, source):
    with torch.no_grad():
        for t, s in zip(target.parameters(), source.parameters()):
            t.lerp_(s, TAU)


def transitions(actor, n=64):
    obs = torch.randn(n, OBS)
    with torch.no_grad():
        act = (actor(obs) + 0.2 * torch.randn(n, ACT)).clamp(-1, 1)
    reward = 4 - 10 * (act - torch.tanh(obs[:, :2])).pow(2).sum(1)
    return obs, act, reward, obs + 0.1 * torch.randn(n, OBS)


def main():
    torch.manual_seed(29)
    actor, critic = Actor(), Critic()
    target_actor, target_critic = copy.deepcopy(actor), copy.deepcopy(critic)
    opt_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    opt_critic = torch.optim.Adam(critic.parameters(), lr=3e-3)
    for it in range(50):
        obs, act, reward, nxt = transitions(actor)
        with torch.no_grad():
            target = reward + 0.9 * target_critic(nxt, target_actor(nxt))
        critic_loss = F.mse_loss(critic(obs, act), target)
        opt_critic.zero_grad()
        critic_loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), MAX_NORM)
        opt_critic.step()

        actor_loss = -critic(obs, actor(obs)).mean()
        opt_actor.zero_grad()
        actor_loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), MAX_NORM)
        opt_actor.step()
        soft_update(target_actor, actor)
        soft_update(target_critic, critic)
        if it % 10 == 0:
            print(f"{it}: critic {critic_loss.item():.3f} actor {actor_loss.item():.3f}")


if __name__ == "__main__":
    main()
