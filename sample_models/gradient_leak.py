"""An actor whose loss fills the gradients of the critic, which steps with them.

Watch it with `gradscope run sample_models/gradient_leak.py`.
"""

import torch
from torch import Tensor, nn


def value(critic: nn.Module, state: Tensor, action: Tensor) -> Tensor:
    """Return the value `[batch, 1]` of actions in states."""
    return critic(torch.cat([state, action], dim=1))


def main() -> None:
    """Train a critic by rewards, and an actor by the critic."""
    torch.manual_seed(0)
    actor = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 2))
    critic = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(30):
        state, action = torch.randn(32, 3), torch.randn(32, 2)
        reward = -(action - state[:, :2]).pow(2).sum(1, keepdim=True)
        critic_loss = (value(critic, state, action) - reward).pow(2).mean()
        critic_loss.backward()
        critic_optimizer.step()
        critic_optimizer.zero_grad()
        actor_loss = -value(critic, state, actor(state)).mean()
        actor_loss.backward()  # GS317
        actor_optimizer.step()
        actor_optimizer.zero_grad()


if __name__ == "__main__":
    main()
