import copy
import random

import torch
import torch.nn.functional as F
from torch import nn


def mlp(a, b, width=48):
    return nn.Sequential(nn.Linear(a, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, b))


class Actor(nn.Module):
    LOW, HIGH = -5, 2

    def __init__(self, obs, act):
        super().__init__()
        self.net = mlp(obs, 2 * act)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        log_std = self.LOW + 0.5 * (self.HIGH - self.LOW) * (torch.tanh(log_std) + 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(-1)


class SAC:
    def __init__(self, obs=3, act=1, gamma=0.95, tau=0.01):
        self.actor = Actor(obs, act)
        self.q1, self.q2 = mlp(obs + act, 1), mlp(obs + act, 1)
        self.q1_target, self.q2_target = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.q_optimizer = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=1e-3)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=1e-3)
        self.target_entropy = -float(act)
        self.gamma, self.tau = gamma, tau

    def q(self, first, second, obs, act):
        x = torch.cat([obs, act], dim=-1)
        return first(x).squeeze(-1), second(x).squeeze(-1)

    def update(self, obs, act, reward, following, step):
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            a, log_prob = self.actor(following)
            soft = torch.min(*self.q(self.q1_target, self.q2_target, following, a)) - alpha * log_prob
            goal = reward + self.gamma * soft
        q1, q2 = self.q(self.q1, self.q2, obs, act)
        q_loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()
        if step % 2 == 0:
            for _ in range(2):
                a, log_prob = self.actor(obs)
                actor_loss = (alpha * log_prob - torch.min(*self.q(self.q1, self.q2, obs, a))).mean()
                self.actor_optimizer.zero_grad()
                actor_loss.backward()
                self.actor_optimizer.step()
                alpha_loss = -(self.log_alpha.exp() * (log_prob.detach() + self.target_entropy)).mean()
                self.alpha_optimizer.zero_grad()
                alpha_loss.backward()
                self.alpha_optimizer.step()
                alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            for online, target in ((self.q1, self.q1_target), (self.q2, self.q2_target)):
                for p, t in zip(online.parameters(), target.parameters()):
                    t.lerp_(p, self.tau)
        return q_loss.item()


def main():
    random.seed(42)
    torch.manual_seed(42)
    agent = SAC()
    memory = []
    obs = torch.randn(3)
    for step in range(140):
        with torch.no_grad():
            act, _ = agent.actor(obs)
        following = 0.8 * obs + 0.3 * act + 0.1 * torch.randn(3)
        memory.append((obs, act, -following.norm(), following))
        obs = following
        if len(memory) > 40:
            batch = [torch.stack(x) for x in zip(*random.sample(memory, 32))]
            loss = agent.update(*batch, step)
            if step % 25 == 0:
                print(step, round(loss, 4), round(agent.log_alpha.exp().item(), 4))


main()
