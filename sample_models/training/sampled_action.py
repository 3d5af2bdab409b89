"""An actor that is to climb its critic, whose action is drawn in a way that no gradient passes.

Watch it with `gradscope run sample_models/training/sampled_action.py`.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional


class Actor(nn.Module):
    """Chooses two forces by what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, state: Tensor) -> Normal:
        """Return the distribution of the action."""
        return Normal(self.layers(state), 0.2)


def main() -> None:
    """Train both for a few rounds."""
    torch.manual_seed(0)
    actor, critic = Actor(), nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    for _ in range(20):
        state = torch.randn(64, 3)
        with torch.no_grad():
            tried = actor(state).sample()
        reward = -(tried - state[:, :2]).pow(2).sum(1, keepdim=True)
        critic_optimizer.zero_grad()
        functional.mse_loss(critic(torch.cat([state, tried], 1)), reward).backward()
        critic_optimizer.step()

        action = actor(state).sample()  # GS202
        actor_optimizer.zero_grad()
        (-critic(torch.cat([state, action], 1)).mean()).backward()
        actor_optimizer.step()


if __name__ == "__main__":
    main()
