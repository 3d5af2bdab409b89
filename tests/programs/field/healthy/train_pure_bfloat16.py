import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--bf16", action="store_true", default=True)
    return parser.parse_args([])


class TinyLM(nn.Module):
    def __init__(self, vocab=32, dim=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.encoder(self.embed(ids), mask=mask, is_causal=True))


def batches(n, g):
    for _ in range(n):
        start = torch.randint(0, 32, (16, 1), generator=g)
        stride = torch.randint(1, 4, (16, 1), generator=g)
        yield (start + stride * torch.arange(13)) % 32


def main():
    args = get_args()
    torch.manual_seed(16)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    scheduler = CosineAnnealingLR(optimizer, args.steps)
    g = torch.Generator().manual_seed(17)
    for step, ids in enumerate(batches(args.steps, g)):
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 30 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
