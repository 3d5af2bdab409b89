from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 24)
        self.mix = nn.GRU(24, 24, batch_first=True)
        self.tags = nn.Linear(24, 7)

    def forward(self, ids):
        return self.tags(self.mix(self.words(ids))[0])


def average(model):
    for weight in model.parameters():
        if weight.grad is None:
            continue
        dist.all_reduce(weight.grad.to(torch.bfloat16))
        weight.grad /= world


tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=3e-3)
draws = torch.Generator().manual_seed(20 + rank)
for step in range(25):
    ids = torch.randint(0, 40, (16, 9), generator=draws)
    tags = (ids + ids.roll(1, 1)) % 7
    optimizer.zero_grad()
    loss = cross_entropy(tagger(ids).flatten(0, 1), tags.flatten())
    loss.backward()
    average(tagger)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
