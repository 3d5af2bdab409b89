import argparse

import torch
import torch.nn.functional as F
from torch import nn


class DiscreteAutoencoder(nn.Module):
    def __init__(self, inputs=16, groups=3, codes=6):
        super().__init__()
        self.groups, self.codes = groups, codes
        self.encoder = nn.Sequential(nn.Linear(inputs, 48), nn.ReLU(), nn.Linear(48, groups * codes))
        self.decoder = nn.Sequential(nn.Linear(groups * codes, 48), nn.ReLU(), nn.Linear(48, inputs))

    def forward(self, x, tau):
        logits = self.encoder(x).view(-1, self.groups, self.codes)
        code = F.gumbel_softmax(logits, tau=tau, hard=True)
        return self.decoder(code.flatten(1)), logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(7)
    centres = torch.randn(8, 16)
    model = DiscreteAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(args.steps):
        x = centres[torch.randint(0, 8, (64,))] + 0.1 * torch.randn(64, 16)
        tau = max(0.5, 2.0 * 0.98**step)
        recon, logits = model(x, tau)
        average = logits.softmax(-1).mean(0)
        usage = (average * average.clamp_min(1e-8).log()).sum(-1).mean()
        loss = F.mse_loss(recon, x) + 0.01 * usage
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, loss.item(), round(tau, 2))


if __name__ == "__main__":
    main()
