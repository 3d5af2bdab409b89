import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
random.seed(11)
VOCAB, PAD = 24, 0


class Model(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.head(self.gru(self.embed(ids))[0])


def micro_batch():
    length = random.randint(5, 20)
    ids = 1 + (torch.randint(VOCAB - 1, (8, 1)) + torch.arange(length)) % (VOCAB - 1)
    ids[torch.rand(8, length).cumsum(1) > length * 0.4] = PAD
    return ids


def windows(batches, size):
    for i in range(0, len(batches), size):
        yield batches[i : i + size]


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
for epoch in range(4):
    batches = [micro_batch() for _ in range(30)]
    total = 0.0
    for window in windows(batches, 4):
        tokens = sum((ids[:, 1:] != PAD).sum().item() for ids in window)
        for ids in window:
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(
                logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD, reduction="sum"
            )
            (loss / tokens).backward()
            total += loss.item() / tokens
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch} loss {total / 8:.3f}")
