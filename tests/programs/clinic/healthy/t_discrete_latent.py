import math

import torch
import torch.nn.functional as F
from torch import nn


class DiscreteVAE(nn.Module):
    def __init__(self, inputs=20, groups=4, codes=6, width=48):
        super().__init__()
        self.groups, self.codes = groups, codes
        self.encoder = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, groups * codes)
        )
        self.decoder = nn.Sequential(
            nn.Linear(groups * codes, width), nn.ReLU(), nn.Linear(width, inputs)
        )

    def forward(self, x, temperature):
        logits = self.encoder(x).unflatten(1, (self.groups, self.codes))
        sample = F.gumbel_softmax(logits, tau=temperature, hard=True)
        return self.decoder(sample.flatten(1)), logits


def evidence(model, x, temperature, weight):
    scores, logits = model(x, temperature)
    reconstruction = F.binary_cross_entropy_with_logits(scores, x, reduction="none").sum(1).mean()
    log_q = logits.log_softmax(-1)
    divergence = (log_q.exp() * (log_q + math.log(model.codes))).sum((1, 2)).mean()
    return reconstruction + weight * divergence, reconstruction, divergence


def patterns(n, prototypes):
    rows = prototypes[torch.randint(0, len(prototypes), (n,))]
    flips = torch.rand(n, rows.shape[1]) < 0.05
    return torch.where(flips, 1 - rows, rows)


def main():
    torch.manual_seed(11)
    prototypes = torch.rand(12, 20).round()
    model = DiscreteVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(150):
        temperature = max(0.5, math.exp(-0.01 * step))
        loss, reconstruction, divergence = evidence(
            model, patterns(64, prototypes), temperature, weight=min(1.0, step / 100)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step}: {reconstruction.item():.3f} {divergence.item():.3f}")


if __name__ == "__main__":
    main()
