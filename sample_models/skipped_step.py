"""Exponentials in float16 that overflow for loud recordings: the scaler leaves their steps out.

Watch it with `gradscope run sample_models/skipped_step.py`.
"""

import torch
from torch import nn


def main() -> None:
    """Train a classifier with a softmax of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    centres = torch.randn(3, 8)
    for step in range(60):
        target = torch.randint(3, (32,))
        inputs = centres[target] + 0.3 * torch.randn(32, 8)
        if step % 4 == 3:
            inputs = 40 * inputs
        scores = model(inputs).half()
        # float16 ends at 65,504, which exp() passes at 11.1; torch.logsumexp() does not.
        chosen = scores.gather(1, target[:, None]).squeeze(1)
        loss = (scores.exp().sum(dim=1).log() - chosen).float().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # GS602
        scaler.update()


if __name__ == "__main__":
    main()
