"""Train a tiny language model with a large effective batch."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class TrainConfig:
    vocab: int = 40
    dim: int = 24
    seq_len: int = 16
    micro_batch: int = 4
    gradient_accumulation_steps: int = 8
    lr: float = 0.5
    max_steps: int = 8


class TinyLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.rnn = nn.GRU(cfg.dim, cfg.dim, batch_first=True)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.head(hidden)


def stream(cfg, generator):
    while True:
        start = torch.randint(cfg.vocab, (cfg.micro_batch, 1), generator=generator)
        yield (start + torch.arange(cfg.seq_len + 1)) % cfg.vocab


def main(cfg):
    torch.manual_seed(0)
    model = TinyLM(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    loader = stream(cfg, torch.Generator().manual_seed(5))
    for step in range(cfg.max_steps):
        running = 0.0
        for _ in range(cfg.gradient_accumulation_steps):
            tokens = next(loader)
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss = loss / cfg.gradient_accumulation_steps
            loss.backward()
            running += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step} loss {running:.4f}")


if __name__ == "__main__":
    main(TrainConfig())
