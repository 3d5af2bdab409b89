import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel


def across(features):
    rank, world = dist.get_rank(), dist.get_world_size()
    everyone = features.new_empty(world * len(features), features.shape[1])
    dist.all_gather_into_tensor(everyone, features.detach().contiguous())
    start = rank * len(features)
    everyone = torch.cat([everyone[:start], features, everyone[start + len(features) :]])
    return everyone, torch.arange(len(features)) + rank * len(features)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 10)
        )
        self.caption = nn.EmbeddingBag(30, 10)
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, pictures, captions):
        return (
            normalize(self.picture(pictures), dim=1),
            normalize(self.caption(captions), dim=1),
            self.temperature.exp(),
        )


def contrast(seen, written, scale):
    all_written, labels = across(written)
    all_seen, _ = across(seen)
    forth = cross_entropy(scale * seen @ all_written.T, labels)
    back = cross_entropy(scale * written @ all_seen.T, labels)
    return (forth + back) / 2


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(14)
    model = DistributedDataParallel(Towers())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(300 + rank)
    for _ in range(20):
        captions = torch.randint(0, 30, (12, 5), generator=draws)
        pictures = captions.float().mean(1)[:, None, None, None] / 15 + 0.2 * torch.randn(
            12, 1, 7, 7, generator=draws
        )
        loss = contrast(*model(pictures, captions))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
