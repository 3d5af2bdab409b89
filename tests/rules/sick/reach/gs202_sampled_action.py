"""Actions are sampled, and the critic's gradient is meant to reach the actor through them."""

import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
        self.critic = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, state):
        probabilities = self.actor(state).softmax(-1)
        action = torch.multinomial(probabilities, 1).squeeze(1)  # <-
        chosen = nn.functional.one_hot(action, 3).float()
        return self.critic(torch.cat([state, chosen], dim=1))


def loss_fn(output, _):
    return -output.mean()


torch.manual_seed(0)
model = ActorCritic()
batch = (torch.randn(32, 5), torch.zeros(32))
