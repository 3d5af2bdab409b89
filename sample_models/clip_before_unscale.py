"""Mixed precision with a gradient scaler: the clip meets gradients that are still scaled.

Watch it with `gradscope run sample_models/clip_before_unscale.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train a denoiser of short signals."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 1, 5, padding=2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    time = torch.linspace(0, 6, 48)
    for _ in range(30):
        clean = torch.sin(time + 6 * torch.rand(16, 1, 1))
        noisy = clean + 0.3 * torch.randn_like(clean)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            denoised = model(noisy)
        loss = functional.mse_loss(denoised.float(), clean)
        scaler.scale(loss).backward()
        # `scaler.unscale_(optimizer)` belongs here.
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # GS403
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main()
