"""A training of action values whose target network never follows the trained one.

Watch it with `gradscope run sample_models/target_never_updated.py`.
"""

import copy

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train on random transitions."""
    torch.manual_seed(0)
    online = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    for _ in range(60):
        state, action = torch.randn(32, 6), torch.randint(4, (32,))
        following = state + 0.1 * torch.randn(32, 6)
        reward = following[:, 0] - action
        with torch.no_grad():
            wanted = reward + 0.9 * target(following).amax(1)  # GS331
        chosen = online(state).gather(1, action[:, None]).squeeze(1)
        loss = functional.smooth_l1_loss(chosen, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
