"""A recurrent world model with discrete latents: straight-through samples, stop-gradients in the divergence."""

import torch
import torch.nn.functional as F
from torch import nn


class WorldModel(nn.Module):
    def __init__(self, observation=24, action=4, width=64, groups=6, classes=6):
        super().__init__()
        self.groups, self.classes = groups, classes
        self.encoder = nn.Sequential(nn.Linear(observation, width), nn.LayerNorm(width), nn.SiLU())
        self.cell = nn.GRUCell(groups * classes + action, width)
        self.prior = nn.Linear(width, groups * classes)
        self.posterior = nn.Linear(2 * width, groups * classes)
        self.decoder = nn.Sequential(
            nn.Linear(width + groups * classes, width), nn.SiLU(), nn.Linear(width, observation)
        )
        self.reward = nn.Linear(width, 1)
        nn.init.zeros_(self.reward.weight)
        self.first = nn.Parameter(torch.zeros(width))

    def sample(self, logits):
        probability = 0.99 * logits.softmax(dim=-1) + 0.01 / self.classes
        hard = F.one_hot(torch.distributions.Categorical(probability).sample(), self.classes).float()
        return (hard + probability - probability.detach()).flatten(1)

    def forward(self, observation, action):
        h = torch.tanh(self.first).expand(len(observation), -1)
        z = torch.zeros(len(observation), self.groups * self.classes)
        images, rewards, divergence = [], [], 0.0
        for t in range(observation.shape[1]):
            h = self.cell(torch.cat([z, action[:, t]], dim=1), h)
            prior = self.prior(h).view(-1, self.groups, self.classes)
            features = torch.cat([h, self.encoder(observation[:, t])], dim=1)
            posterior = self.posterior(features).view(-1, self.groups, self.classes)
            z = self.sample(posterior)
            divergence = divergence + 0.8 * self.divergence(posterior.detach(), prior)
            divergence = divergence + 0.2 * self.divergence(posterior, prior.detach())
            images.append(self.decoder(torch.cat([h, z], dim=1)))
            rewards.append(self.reward(h).squeeze(1))
        return torch.stack(images, dim=1), torch.stack(rewards, dim=1), divergence / observation.shape[1]

    def divergence(self, p, q):
        p, q = p.log_softmax(dim=-1), q.log_softmax(dim=-1)
        return (p.exp() * (p - q)).sum(dim=(1, 2)).mean().clamp(min=0.01)


def build_model():
    torch.manual_seed(229)
    return WorldModel()


def build_batch():
    torch.manual_seed(230)
    observation = torch.randn(6, 20, 24).cumsum(dim=1) * 0.3
    return (observation, torch.randn(6, 20, 4)), torch.randn(6, 20)


def loss_fn(output, batch):
    image, reward, divergence = output
    return F.mse_loss(image, batch[0][0]) + F.mse_loss(reward, batch[1]) + divergence
