"""Goes on from a checkpoint in the middle of training."""

import torch
import torch.nn.functional as F
from torch import nn

DONE = 40
TOTAL = 60


def main():
    torch.manual_seed(29)
    model = nn.Sequential(
        nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for group in optimizer.param_groups:
        group["initial_lr"] = 2e-3
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, 1 - step / TOTAL), last_epoch=DONE - 1
    )
    centres = torch.randn(3, 12)
    for step in range(60):
        kinds = torch.randint(0, 3, (32,))
        loss = F.cross_entropy(model(centres[kinds] + torch.randn(32, 12)), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 15 == 0:
            print(step, f"{loss.item():.4f}")


main()
