"""Soft actor-critic with delayed policy updates on a toy task."""

import copy
from collections import deque

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F


def net(d_in, d_out):
    return nn.Sequential(nn.Linear(d_in, 32), nn.ReLU(), nn.Linear(32, d_out))


class SAC:
    def __init__(self, obs=4, act=2):
        self.actor, self.q1, self.q2 = net(obs, 2 * act), net(obs + act, 1), net(obs + act, 1)
        self.targets = [copy.deepcopy(q).requires_grad_(False) for q in (self.q1, self.q2)]
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.opt_actor = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.opt_q = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=1e-3)
        self.opt_alpha = torch.optim.Adam([self.log_alpha], lr=1e-3)
        self.warmup = [
            torch.optim.lr_scheduler.LambdaLR(o, lambda i: min(1.0, i / 10)) for o in (self.opt_actor, self.opt_q)
        ]

    def act(self, obs):
        mean, log_std = self.actor(obs).chunk(2, -1)
        dist = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = dist.rsample()
        logp = dist.log_prob(raw) - 2 * (0.6931 - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), logp.sum(-1, keepdim=True)

    def update(self, batch, step):
        obs, act, reward, nxt = batch
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            a, logp = self.act(nxt)
            both = torch.cat([nxt, a], 1)
            target = reward + 0.9 * (torch.min(self.targets[0](both), self.targets[1](both)) - alpha * logp)
        pair = torch.cat([obs, act], 1)
        q_loss = F.mse_loss(self.q1(pair), target) + F.mse_loss(self.q2(pair), target)
        self.opt_q.zero_grad()
        q_loss.backward()
        self.opt_q.step()
        if step % 2 == 0:
            a, logp = self.act(obs)
            both = torch.cat([obs, a], 1)
            actor_loss = (alpha * logp - torch.min(self.q1(both), self.q2(both))).mean()
            self.opt_actor.zero_grad()
            actor_loss.backward()
            self.opt_actor.step()
            alpha_loss = -(self.log_alpha.exp() * (logp.detach() - 2.0)).mean()
            self.opt_alpha.zero_grad()
            alpha_loss.backward()
            self.opt_alpha.step()
        for s in self.warmup:
            s.step()
        for target_net, q in zip(self.targets, (self.q1, self.q2)):
            for t, p in zip(target_net.parameters(), q.parameters()):
                t.data.mul_(0.98).add_(0.02 * p.data)
        return q_loss.item()


def main():
    torch.manual_seed(6)
    agent, memory, obs = SAC(), deque(maxlen=2000), torch.randn(16, 4)
    for step in range(70):
        with torch.no_grad():
            act = agent.act(obs)[0] if step > 20 else 2 * torch.rand(16, 2) - 1
        reward = -(act - obs[:, :2].tanh()).pow(2).sum(1, keepdim=True)
        nxt = 0.9 * obs + 0.3 * torch.randn(16, 4)
        memory.append((obs, act, reward, nxt))
        obs = nxt
        if step < 20:
            continue
        picked = [memory[i] for i in torch.randint(len(memory), (4,)).tolist()]
        loss = agent.update(tuple(torch.cat(p) for p in zip(*picked)), step)
        if step % 10 == 0:
            print(f"{step}: q {loss:.3f} alpha {agent.log_alpha.exp().item():.3f}")


if __name__ == "__main__":
    main()
