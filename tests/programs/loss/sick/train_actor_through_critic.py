"""Deterministic policy gradient on a one-step control task."""

import torch
from torch import nn


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 48), nn.ReLU(), nn.Linear(48, outputs))


class Learner:
    def __init__(self):
        self.actor, self.critic = network(3, 2), network(5, 1)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-3)

    def value(self, state, action):
        return self.critic(torch.cat([state, action], dim=1))

    def update(self, state, action, reward):
        critic_loss = (self.value(state, action) - reward).pow(2).mean()
        critic_loss.backward()
        self.critic_optimizer.step()
        self.critic_optimizer.zero_grad()
        self.actor_optimizer.zero_grad()
        actor_loss = -self.value(state, self.actor(state)).mean()
        actor_loss.backward()
        self.actor_optimizer.step()
        return critic_loss.item(), actor_loss.item()


def main():
    torch.manual_seed(0)
    learner = Learner()
    for step in range(40):
        state = torch.randn(64, 3)
        action = torch.randn(64, 2)
        reward = -(action - state[:, :2]).pow(2).sum(1, keepdim=True)
        losses = learner.update(state, action, reward)
        if step % 10 == 0:
            print(step, *(round(loss, 3) for loss in losses))


if __name__ == "__main__":
    main()
