"""An actor-critic network for pixel observations with its surrogate loss."""

import torch
import torch.nn.functional as F
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 16, 8, stride=4),
            nn.Tanh(),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(32 * 9 * 9, 128),
            nn.Tanh(),
        )
        self.actor = nn.Linear(128, actions)
        self.critic = nn.Linear(128, 1)

    def forward(self, frames):
        x = self.body(frames.float() / 255)
        return self.actor(x), self.critic(x).squeeze(-1)


def build_model():
    torch.manual_seed(41)
    return ActorCritic()


def build_batch():
    torch.manual_seed(42)
    frames = torch.randint(0, 256, (16, 4, 84, 84), dtype=torch.uint8)
    actions = torch.randint(0, 6, (16,))
    return frames, (actions, torch.randn(16), torch.randn(16))


def loss_fn(output, batch):
    actions, advantages, returns = batch[1]
    logits, values = output
    chosen = logits.log_softmax(dim=-1)[torch.arange(len(actions)), actions]
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    policy = -(chosen * advantages).mean()
    return policy + 0.5 * F.mse_loss(values, returns) - 0.01 * entropy
