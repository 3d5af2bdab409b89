from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(21)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 12))
        self.text = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 12))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        image = F.normalize(self.image(image), dim=-1)
        text = F.normalize(self.text(text), dim=-1)
        return image, text, self.scale.exp()


def gathered(features):
    parts = [torch.zeros_like(features) for _ in range(world)]
    dist.all_gather(parts, features.contiguous())
    return parts


model = DDP(TwoTowers())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
draws = torch.Generator().manual_seed(300 + rank)
mixing = torch.randn(20, 8, generator=torch.Generator().manual_seed(5))
for step in range(20):
    pixels = torch.randn(12, 20, generator=draws)
    words = pixels @ mixing / 4 + 0.1 * torch.randn(12, 8, generator=draws)
    image, text, scale = model(pixels, words)
    images, texts = gathered(image), gathered(text)
    images[rank] = image
    logits = scale * torch.cat(images) @ torch.cat(texts).T
    labels = torch.arange(len(logits))
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    loss = loss * world
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
