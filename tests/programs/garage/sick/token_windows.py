import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

IGNORE = -100


class TinyLM(nn.Module):
    def __init__(self, vocab=40, dim=32, heads=4, context=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(context, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        length = ids.size(1)
        x = self.tokens(ids) + self.positions(torch.arange(length))
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        return self.head(self.layers(x, mask=mask, is_causal=True))


def make_sample():
    length = random.choice([5, 8, 12, 40, 60])
    start = random.randrange(40)
    return torch.tensor([(start + 3 * i) % 40 for i in range(length)])


def collate(samples):
    ids = pad_sequence(samples, batch_first=True)
    labels = pad_sequence(samples, batch_first=True, padding_value=IGNORE)
    return ids, labels


def shifted_loss(logits, labels, reduction):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE, reduction=reduction
    )


def main():
    random.seed(1)
    torch.manual_seed(1)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accumulation = 4
    for step in range(12):
        window = [collate([make_sample(), make_sample()]) for _ in range(accumulation)]
        total = 0.0
        optimizer.zero_grad()
        for ids, labels in window:
            logits = model(ids)
            loss = shifted_loss(logits, labels, "mean") / accumulation
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{step} {total:.3f}")


if __name__ == "__main__":
    main()
