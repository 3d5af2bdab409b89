"""Proximal policy optimization on a toy continuous control task."""

import torch
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=6, act_dim=2, hidden=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.mean = nn.Linear(hidden, act_dim)
        self.log_std = nn.Parameter(torch.zeros(act_dim))
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        dist = Normal(self.mean(h), self.log_std.exp())
        return dist, self.value_head(h).squeeze(-1)


def rollout(model, n=64):
    obs = torch.randn(n, 6)
    with torch.no_grad():
        dist, values = model(obs)
        actions = dist.sample()
        logp = dist.log_prob(actions).sum(-1)
    rewards = -(actions - obs[:, :2]).pow(2).sum(-1, keepdim=True) + obs[:, 2:3]
    return {
        "obs": obs,
        "actions": actions,
        "logp": logp,
        "values": values.reshape(n, 1),
        "returns": rewards,
    }


def critic_loss(values, batch, clip=0.5):
    clipped = batch["values"] + (values - batch["values"]).clamp(-clip, clip)
    error = (batch["returns"] - values).pow(2)
    error_clipped = (batch["returns"] - clipped).pow(2)
    return 0.5 * torch.max(error, error_clipped).mean()


def update(model, optimizer, batch, eps=0.2):
    dist, values = model(batch["obs"])
    advantage = (batch["returns"] - batch["values"]).squeeze(-1)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (dist.log_prob(batch["actions"]).sum(-1) - batch["logp"]).exp()
    policy = -torch.min(ratio * advantage, ratio.clamp(1 - eps, 1 + eps) * advantage).mean()
    loss = policy + 0.5 * critic_loss(values, batch) - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(4)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for it in range(8):
        batch = rollout(model)
        for _ in range(4):
            loss = update(model, optimizer, batch)
        print(f"iteration {it} loss {loss:.3f} reward {batch['returns'].mean().item():.3f}")


if __name__ == "__main__":
    main()
