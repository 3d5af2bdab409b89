import torch
import torch.nn as nn
import torch.nn.functional as F


class Imitator(nn.Module):
    """Behaviour cloning of a simple controller."""

    def __init__(self, obs_dim=6, actions=5, width=40):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(obs_dim, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, actions),
        )
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)

    def forward(self, obs):
        return self.net(obs)


def expert(obs):
    score = torch.stack([obs[:, 0], -obs[:, 0], obs[:, 1] + obs[:, 2], -obs[:, 1] * 1.2, obs[:, 3] - obs[:, 4]], dim=1)
    return score.argmax(dim=1)


def clone(steps=120, seed=321):
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed + 1)
    policy = Imitator()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for step in range(steps):
        obs = torch.randn(128, 6, generator=g)
        label = expert(obs)
        logits = policy(obs)
        loss = F.cross_entropy(logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            acc = (logits.argmax(1) == label).float().mean()
            print(f"{step:4d} nll {loss.item():.4f} acc {acc.item():.3f}")
    return policy


if __name__ == "__main__":
    clone()
