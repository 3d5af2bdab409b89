import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 32), nn.ReLU())
        self.mean, self.log_std = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, state):
        h = self.trunk(state)
        dist = Normal(self.mean(h), self.log_std(h).clamp(-4, 1).exp())
        raw = dist.rsample()
        action = torch.tanh(raw)
        log_pi = dist.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_pi


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, state, action):
        return self.net(torch.cat([state, action], -1))


class SAC:
    def __init__(self, gamma=0.5, tau=0.05):
        self.actor, self.critic = Actor(), Critic()
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.target_entropy = -1.0
        self.gamma, self.tau = gamma, tau
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=1e-3)

    def update(self, s, a, r, s2):
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            a2, log_pi2 = self.actor(s2)
            backup = r + self.gamma * (self.target(s2, a2) - alpha * log_pi2)
        critic_loss = F.mse_loss(self.critic(s, a), backup)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        action, log_pi = self.actor(s)
        self.critic.requires_grad_(False)
        actor_loss = (alpha * log_pi - self.critic(s, action)).mean()
        alpha_loss = -(self.log_alpha.exp() * (log_pi + self.target_entropy)).mean()
        self.actor_opt.zero_grad()
        self.alpha_opt.zero_grad()
        (actor_loss + alpha_loss).backward()
        self.actor_opt.step()
        self.alpha_opt.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            for t, p in zip(self.target.parameters(), self.critic.parameters()):
                t.lerp_(p, self.tau)
        return critic_loss.item(), actor_loss.item()


def main():
    torch.manual_seed(19)
    agent = SAC()
    for step in range(80):
        s, s2 = torch.randn(64, 3), torch.randn(64, 3)
        with torch.no_grad():
            a, _ = agent.actor(s)
        r = -(a - s[:, :1].tanh()).pow(2)
        losses = agent.update(s, a, r, s2)
        if step % 20 == 0:
            print(step, losses, agent.log_alpha.exp().item())


if __name__ == "__main__":
    main()
