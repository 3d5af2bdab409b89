"""A policy that is trained by PPO, with old probabilities that are computed before every step.

Watch it with `gradscope run sample_models/ratio_always_one.py`.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

CLIP, EPOCHS = 0.2, 4


def probabilities(policy: nn.Module, states: Tensor, actions: Tensor) -> Tensor:
    """Return the log-probabilities of actions."""
    return Categorical(logits=policy(states)).log_prob(actions)


def main() -> None:
    """Train the policy to take the action with the largest of the state's numbers."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for _ in range(8):
        states = torch.randn(64, 4)
        with torch.no_grad():
            actions = Categorical(logits=policy(states)).sample()
        rewards = states.gather(1, actions[:, None]).squeeze(1)
        advantages = (rewards - rewards.mean()) / rewards.std()
        for _ in range(EPOCHS):
            with torch.no_grad():
                old = probabilities(policy, states, actions)
            ratio = torch.exp(probabilities(policy, states, actions) - old)  # GS716
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
