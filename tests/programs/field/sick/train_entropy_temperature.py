import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, n_out))


class Actor(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.net = mlp(obs, 2 * act)

    def sample(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        u = mean + std * torch.randn_like(mean)
        a = torch.tanh(u)
        log_pi = (-0.5 * ((u - mean) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        log_pi = log_pi - torch.log(1 - a**2 + 1e-6).sum(-1)
        return a, log_pi


class SAC:
    def __init__(self, obs, act):
        self.actor = Actor(obs, act)
        self.critic = mlp(obs + act, 1)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.target_entropy = -float(act)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=3e-3)
        self.policy_opt = torch.optim.Adam([*self.actor.parameters(), self.log_alpha], lr=1e-3)

    def update(self, obs, action, reward, following):
        with torch.no_grad():
            a2, logp2 = self.actor.sample(following)
            q2 = self.target(torch.cat([following, a2], -1)).squeeze(-1)
            goal = reward + 0.9 * (q2 - self.log_alpha.exp() * logp2)
        q = self.critic(torch.cat([obs, action], -1)).squeeze(-1)
        critic_loss = F.mse_loss(q, goal)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        a, log_pi = self.actor.sample(obs)
        q_pi = self.critic(torch.cat([obs, a], -1)).squeeze(-1)
        actor_loss = (self.log_alpha.exp().detach() * log_pi - q_pi).mean()
        alpha_loss = (-self.log_alpha.exp() * (log_pi + self.target_entropy)).mean()
        self.policy_opt.zero_grad()
        (actor_loss + alpha_loss).backward()
        self.policy_opt.step()
        with torch.no_grad():
            for t, s in zip(self.target.parameters(), self.critic.parameters()):
                t.lerp_(s, 0.02)
        return critic_loss.item(), actor_loss.item()


if __name__ == "__main__":
    torch.manual_seed(2)
    agent = SAC(3, 2)
    for step in range(150):
        obs = torch.randn(64, 3)
        action = torch.rand(64, 2) * 2 - 1
        reward = -((action - obs[:, :2].clamp(-0.8, 0.8)) ** 2).sum(-1)
        losses = agent.update(obs, action, reward, torch.randn(64, 3))
    print(losses, agent.log_alpha.exp().item())
