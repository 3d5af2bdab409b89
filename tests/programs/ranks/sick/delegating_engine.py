import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Autoencoder(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(128, 24)
        )
        self.to_mean, self.to_scale = nn.Linear(24, latent), nn.Linear(24, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.GELU(), nn.Linear(32, 64))

    def elbo(self, images):
        hidden = self.encoder(images)
        mean, scale = self.to_mean(hidden), F.softplus(self.to_scale(hidden)) + 1e-3
        posterior = torch.distributions.Normal(mean, scale)
        drawn = self.decoder(posterior.rsample())
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(scale))
        kl = torch.distributions.kl_divergence(posterior, prior).sum(1)
        return (F.mse_loss(drawn, images.flatten(1), reduction="none").sum(1) + 0.1 * kl).mean()

    def forward(self, images):
        return self.elbo(images)


class Engine:
    def __init__(self, network):
        self.wrapped = DistributedDataParallel(network)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)

    def __getattr__(self, name):
        return getattr(self.__dict__["wrapped"].module, name)

    def training_step(self, images):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.elbo(images)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(3)
    engine = Engine(Autoencoder())
    images = torch.rand(320, 1, 8, 8, generator=torch.Generator().manual_seed(31 + rank))
    torch.manual_seed(50 + rank)
    for start in range(0, 320, 16):
        loss = engine.training_step(images[start : start + 16])
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
