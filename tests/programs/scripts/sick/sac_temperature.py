import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    obs: int = 6
    act: int = 2
    hidden: int = 48
    batch: int = 64
    steps: int = 120
    gamma: float = 0.97
    tau: float = 0.02
    lr: float = 1e-3
    seed: int = 3


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Actor(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(cfg.obs, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU())
        self.mean = nn.Linear(cfg.hidden, cfg.act)
        self.log_std = nn.Linear(cfg.hidden, cfg.act)

    def forward(self, obs):
        h = self.trunk(obs)
        log_std = -3 + 2.5 * (torch.tanh(self.log_std(h)) + 1)
        normal = torch.distributions.Normal(self.mean(h), log_std.exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        logp = normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, logp.sum(-1, keepdim=True)


class Environment:
    def __init__(self, cfg):
        self.a = torch.randn(cfg.obs, cfg.obs) * 0.2
        self.b = torch.randn(cfg.act, cfg.obs) * 0.5

    def transition(self, obs, act):
        nxt = obs @ self.a + act @ self.b + 0.05 * torch.randn_like(obs)
        return nxt, -(nxt**2).mean(-1, keepdim=True)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    env = Environment(cfg)
    actor = Actor(cfg)
    q1 = mlp([cfg.obs + cfg.act, cfg.hidden, cfg.hidden, 1])
    q2 = mlp([cfg.obs + cfg.act, cfg.hidden, cfg.hidden, 1])
    q1_target, q2_target = copy.deepcopy(q1).requires_grad_(False), copy.deepcopy(q2).requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True)
    q_opt = torch.optim.Adam(list(q1.parameters()) + list(q2.parameters()), lr=cfg.lr)
    pi_opt = torch.optim.Adam([{"params": actor.parameters()}, {"params": [log_alpha], "lr": 3e-4}], lr=cfg.lr)
    target_entropy = -float(cfg.act)
    for step in range(cfg.steps):
        obs = torch.randn(cfg.batch, cfg.obs)
        with torch.no_grad():
            act, _ = actor(obs)
            nxt, reward = env.transition(obs, act)
            nxt_act, nxt_logp = actor(nxt)
            pair = torch.cat([nxt, nxt_act], -1)
            backup = torch.min(q1_target(pair), q2_target(pair)) - log_alpha.exp() * nxt_logp
            target = reward + cfg.gamma * backup
        pair = torch.cat([obs, act], -1)
        q_loss = F.mse_loss(q1(pair), target) + F.mse_loss(q2(pair), target)
        q_opt.zero_grad()
        q_loss.backward()
        q_opt.step()

        for p in list(q1.parameters()) + list(q2.parameters()):
            p.requires_grad_(False)
        new_act, logp = actor(obs)
        pair = torch.cat([obs, new_act], -1)
        pi_loss = (log_alpha.exp().detach() * logp - torch.min(q1(pair), q2(pair))).mean()
        alpha_loss = (-log_alpha.exp() * (logp + target_entropy)).mean()
        pi_opt.zero_grad()
        (pi_loss + alpha_loss).backward()
        pi_opt.step()
        for p in list(q1.parameters()) + list(q2.parameters()):
            p.requires_grad_(True)

        with torch.no_grad():
            for live, slow in ((q1, q1_target), (q2, q2_target)):
                for p, t in zip(live.parameters(), slow.parameters()):
                    t.lerp_(p, cfg.tau)
        if step % 40 == 0:
            print(step, round(q_loss.item(), 3), round(log_alpha.exp().item(), 3))


main()
