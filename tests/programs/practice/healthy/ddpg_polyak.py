import copy

import torch
import torch.nn.functional as F
from torch import nn


def mlp(a, b, out=None):
    layers = [nn.Linear(a, 48), nn.ReLU(), nn.Linear(48, b)]
    return nn.Sequential(*layers, *([out] if out else []))


class DDPG:
    def __init__(self, obs=3, act=1):
        self.actor, self.critic = mlp(obs, act, nn.Tanh()), mlp(obs + act, 1)
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.q_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def q(self, net, s, a):
        return net(torch.cat([s, a], -1))

    def update(self, s, a, r, s2, gamma=0.9):
        with torch.no_grad():
            backup = r + gamma * self.q(self.critic_target, s2, self.actor_target(s2))
        q_loss = F.mse_loss(self.q(self.critic, s, a), backup)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        pi_loss = -self.q(self.critic, s, self.actor(s)).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        self.polyak(self.actor, self.actor_target)
        self.polyak(self.critic, self.critic_target)
        return q_loss.item(), pi_loss.item()

    @torch.no_grad()
    def polyak(self, net, target, tau=0.02):
        for p, t in zip(net.parameters(), target.parameters()):
            t.mul_(1 - tau).add_(tau * p)


def main():
    torch.manual_seed(6)
    agent = DDPG()
    state = torch.randn(64, 3)
    for step in range(80):
        with torch.no_grad():
            action = (agent.actor(state) + 0.2 * torch.randn(64, 1)).clamp(-1, 1)
        reward = -(action - 0.5 * state[:, :1]).pow(2)
        following = 0.7 * state + 0.5 * torch.randn_like(state)
        losses = agent.update(state, action, reward, following)
        state = following
        if step % 20 == 0:
            print(step, losses)


if __name__ == "__main__":
    main()
