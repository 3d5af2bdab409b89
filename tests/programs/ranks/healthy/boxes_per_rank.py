import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.SiLU(), nn.Conv2d(12, 12, 3, padding=1), nn.SiLU()
        )
        self.boxes, self.objects = nn.Conv2d(12, 4, 1), nn.Conv2d(12, 1, 1)

    def forward(self, images):
        features = self.trunk(images)
        return self.boxes(features), self.objects(features)


class Criterion:
    def __init__(self, world):
        self.world = world

    def __call__(self, predicted, mask, target):
        boxes, objects = predicted
        count = mask.sum()
        dist.all_reduce(count)
        count = (count / self.world).clamp(min=1)
        picked = mask[:, None].expand_as(boxes)
        box_loss = F.smooth_l1_loss(boxes[picked], target[picked], reduction="sum") / count
        object_loss = F.binary_cross_entropy_with_logits(
            objects[:, 0], mask.float(), reduction="sum"
        )
        return box_loss + object_loss / count


def scene(draws, rank):
    images = torch.randn(4, 3, 8, 8, generator=draws)
    share = 0.05 if rank else 0.6
    mask = torch.rand(4, 8, 8, generator=draws) < share
    return images, mask, images[:, :1].repeat(1, 4, 1, 1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(17)
    model = DistributedDataParallel(Detector())
    criterion = Criterion(dist.get_world_size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(90 + rank)
    for _ in range(24):
        images, mask, target = scene(draws, rank)
        loss = criterion(model(images), mask, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
