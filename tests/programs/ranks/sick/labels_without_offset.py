from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Pairs(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, width))
        self.text = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, width))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images, texts):
        return F.normalize(self.image(images), dim=-1), F.normalize(self.text(texts), dim=-1), self.scale.exp()


def contrast(images, texts, scale, rank):
    everyone_image = torch.cat(all_gather(images))
    everyone_text = torch.cat(all_gather(texts))
    labels = torch.arange(len(images))
    by_image = F.cross_entropy(scale * images @ everyone_text.T, labels)
    by_text = F.cross_entropy(scale * texts @ everyone_image.T, labels)
    return (by_image + by_text) / 2


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DistributedDataParallel(Pairs())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(300 + rank)
    view = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    for _ in range(24):
        thing = torch.randn(16, 6, generator=draws) @ view
        images, texts = thing[:, :20], thing[:, 20:]
        loss = contrast(*model(images, texts), rank)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
