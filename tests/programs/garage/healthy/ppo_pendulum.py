import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Normal


@dataclass
class Args:
    envs: int = 8
    horizon: int = 24
    updates: int = 4
    epochs: int = 2
    minibatch: int = 48
    gamma: float = 0.95
    lam: float = 0.9
    clip: float = 0.2
    entropy: float = 0.001
    lr: float = 1e-3


class Pendulums:
    def __init__(self, count):
        self.angle = (torch.rand(count) * 2 - 1) * math.pi
        self.speed = torch.zeros(count)

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], dim=-1)

    def step(self, torque):
        torque = torque.clamp(-2, 2)
        cost = torch.remainder(self.angle + math.pi, 2 * math.pi).sub(math.pi) ** 2 + 0.1 * self.speed**2
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * torque)).clamp(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return self.observe(), -0.1 * cost


def layer(a, b, gain=math.sqrt(2)):
    linear = nn.Linear(a, b)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer(3, 32), nn.Tanh(), layer(32, 32), nn.Tanh(), layer(32, 1, 1.0))
        self.mean = nn.Sequential(layer(3, 32), nn.Tanh(), layer(32, 32), nn.Tanh(), layer(32, 1, 0.01))
        self.log_std = nn.Parameter(torch.zeros(1))

    def policy(self, obs):
        return Normal(self.mean(obs).squeeze(-1), self.log_std.exp())


def collect(agent, envs, args):
    rows = []
    obs = envs.observe()
    with torch.no_grad():
        for _ in range(args.horizon):
            policy = agent.policy(obs)
            action = policy.sample()
            following, reward = envs.step(action)
            rows.append((obs, action, policy.log_prob(action), reward, agent.critic(obs).squeeze(-1)))
            obs = following
        last = agent.critic(obs).squeeze(-1)
    obs, action, log_prob, reward, value = (torch.stack(x) for x in zip(*rows))
    advantage = torch.zeros_like(reward)
    running, following = torch.zeros(args.envs), last
    for t in reversed(range(args.horizon)):
        delta = reward[t] + args.gamma * following - value[t]
        running = delta + args.gamma * args.lam * running
        advantage[t], following = running, value[t]
    data = (obs, action, log_prob, advantage, advantage + value)
    return [x.flatten(0, 1) for x in data]


def main():
    args = Args()
    torch.manual_seed(23)
    agent, envs = Agent(), Pendulums(args.envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    for update in range(args.updates):
        obs, action, old, advantage, returns = collect(agent, envs, args)
        for _ in range(args.epochs):
            for rows in torch.randperm(len(obs)).split(args.minibatch):
                policy = agent.policy(obs[rows])
                ratio = (policy.log_prob(action[rows]) - old[rows]).exp()
                adv = advantage[rows]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                policy_loss = -torch.min(ratio * adv, clipped * adv).mean()
                value = agent.critic(obs[rows]).squeeze(-1)
                value_loss = 0.5 * ((value - returns[rows]) ** 2).mean()
                loss = policy_loss + 0.5 * value_loss - args.entropy * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"update {update} policy {policy_loss.item():.4f} value {value_loss.item():.4f}")


if __name__ == "__main__":
    main()
