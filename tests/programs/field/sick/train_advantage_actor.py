import torch
from torch import nn
from torch.distributions import Normal


class Policy(nn.Module):
    def __init__(self, obs=4):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, obs):
        return Normal(self.mean(obs), self.log_std.exp())


class Value(nn.Module):
    def __init__(self, obs=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, obs):
        return self.net(obs).squeeze(-1)


def rollout(policy, n=32, horizon=6):
    state = torch.randn(n, 4)
    states, logps, rewards = [], [], []
    for _ in range(horizon):
        dist = policy(state)
        action = dist.sample()
        states.append(state)
        logps.append(dist.log_prob(action).squeeze(-1))
        rewards.append(-((action.squeeze(-1) - state[:, 0]) ** 2))
        state = 0.8 * state + 0.3 * torch.randn(n, 4)
    return states, logps, rewards


def discounted(rewards, gamma=0.5):
    returns, running = [], torch.zeros_like(rewards[0])
    for r in reversed(rewards):
        running = r + gamma * running
        returns.insert(0, running)
    return returns


def main():
    torch.manual_seed(18)
    policy, value = Policy(), Value()
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=5e-3)
    for iteration in range(100):
        states, logps, rewards = rollout(policy)
        returns = discounted(rewards)
        policy_loss = value_loss = 0.0
        for s, logp, ret in zip(states, logps, returns):
            advantage = ret - value(s)
            policy_loss = policy_loss - (logp * advantage).mean()
            value_loss = value_loss + advantage.pow(2).mean()
        loss = policy_loss + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 1.0)
        optimizer.step()
        if iteration % 20 == 0:
            print(iteration, round(torch.stack(rewards).mean().item(), 3), round(value_loss.item(), 3))


if __name__ == "__main__":
    main()
