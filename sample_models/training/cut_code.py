"""An autoencoder whose training script detaches the code: only the decoder learns.

Watch it with `gradscope run sample_models/training/cut_code.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 6))
    decoder = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 24))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    basis = torch.randn(6, 24)
    for _ in range(20):
        inputs = torch.randn(64, 6) @ basis
        code = encoder(inputs).detach()  # GS201
        optimizer.zero_grad()
        functional.mse_loss(decoder(code), inputs).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
