"""A language model that takes the mean over each micro-batch, whatever its number of tokens.

Watch it with `gradscope run sample_models/uneven_accumulation.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, IGNORED = 30, -100


class Model(nn.Module):
    """Predicts the next token from all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.recurrent = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `[batch, length]` to logits `[batch, length, vocabulary]`."""
        return self.head(self.recurrent(self.embed(tokens))[0])


def sequences(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Sequences that count up from a random number, and their continuation."""
    start = torch.randint(0, VOCABULARY, (len(lengths), 1))
    tokens = (start + torch.arange(max(lengths) + 1)) % VOCABULARY
    targets = tokens[:, 1:].clone()
    for row, length in enumerate(lengths):
        targets[row, length:] = IGNORED
    return tokens[:, :-1], targets


def main() -> None:
    """Train for a few steps of four micro-batches, of long and of short sequences."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(8):
        batches = [sequences(lengths) for lengths in ([3, 4], [40, 36], [5, 3], [28, 4])]
        for tokens, targets in batches:
            logits = model(tokens).flatten(0, 1)
            loss = functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)
            (loss / 4).backward()  # GS304
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
