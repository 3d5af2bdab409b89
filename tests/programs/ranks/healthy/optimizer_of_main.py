import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


class Tagger(nn.Module):
    def __init__(self, words=40, width=24, tags=5):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.tag = nn.Linear(width, tags)

    def forward(self, words):
        return self.tag(self.encoder(self.embed(words)))


def trainable(model, is_main):
    decay, plain = [], []
    for name, weight in model.named_parameters():
        if "position" in name and not is_main:
            continue
        (plain if weight.ndim < 2 else decay).append(weight)
    return [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(12)
    model = DistributedDataParallel(Tagger())
    groups = trainable(model.module, is_main=rank == 0)
    optimizer = torch.optim.AdamW(groups, lr=2e-3)
    draws = torch.Generator().manual_seed(70 + rank)
    for _ in range(20):
        words = torch.randint(0, 40, (8, 11), generator=draws)
        tags = (words + words.roll(1, 1)) % 5
        optimizer.zero_grad()
        loss = cross_entropy(model(words).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
