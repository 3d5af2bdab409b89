"""Actor-critic on a corridor: walk right to the goal."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributions import Categorical


class Corridor:
    def __init__(self, length=8, envs=16):
        self.length, self.envs = length, envs
        self.position = torch.zeros(envs, dtype=torch.long)

    def observe(self):
        return torch.nn.functional.one_hot(self.position, self.length).float()

    def step(self, action):
        self.position = (self.position + action * 2 - 1).clamp(0, self.length - 1)
        done = self.position == self.length - 1
        reward = done.float() - 0.01
        self.position[done] = 0
        return self.observe(), reward, done.float()


@dataclass
class Rollout:
    gamma: float = 0.95
    log_probs: list = field(default_factory=list)
    values: list = field(default_factory=list)
    rewards: list = field(default_factory=list)
    dones: list = field(default_factory=list)

    def returns(self, bootstrap):
        running, out = bootstrap, []
        for reward, done in zip(reversed(self.rewards), reversed(self.dones)):
            running = reward + self.gamma * running * (1 - done)
            out.append(running)
        return torch.stack(out[::-1])

    def losses(self, bootstrap):
        returns = self.returns(bootstrap)
        advantage = returns - torch.stack(self.values)
        policy = -(torch.stack(self.log_probs) * advantage.detach()).mean()
        return policy, advantage.square().mean()


class Agent(nn.Module):
    def __init__(self, observations, hidden=32):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.critic = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def value(self, observation):
        return self.critic(observation).squeeze(-1)

    def act(self, observation):
        distribution = Categorical(logits=self.actor(observation))
        action = distribution.sample()
        return action, distribution.log_prob(action)


def main(updates=40, horizon=5):
    torch.manual_seed(0)
    environment = Corridor()
    agent = Agent(environment.length)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    observation = environment.observe()
    for _ in range(updates):
        rollout = Rollout()
        for _ in range(horizon):
            action, log_prob = agent.act(observation)
            rollout.log_probs.append(log_prob)
            rollout.values.append(agent.value(observation))
            observation, reward, done = environment.step(action)
            rollout.rewards.append(reward)
            rollout.dones.append(done)
        policy, critic = rollout.losses(agent.value(observation))
        loss = policy + 0.5 * critic
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{critic.item():.4f}")


main()
