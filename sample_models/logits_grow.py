"""An attention whose learning rate is so high that its scores grow into the hundreds.

Watch it with `gradscope run --budget none sample_models/logits_grow.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LETTERS, LENGTH, WIDTH, HEADS = 32, 12, 32, 2


class Reader(nn.Module):
    """Predicts the next letter with one layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(LETTERS, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        self.norm, self.projection = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS))

    def forward(self, text: Tensor) -> Tensor:
        """Return scores `[batch, length, letters]`."""
        x = self.letters(text) + self.positions.weight
        parts = self.projection(self.norm(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        read = functional.scaled_dot_product_attention(query, key, value, is_causal=True)  # GS115
        return self.head(x + read.transpose(1, 2).flatten(2))


def main() -> None:
    """Train it on texts whose second half repeats the first."""
    torch.manual_seed(0)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    for _ in range(210):
        half = torch.randint(0, LETTERS, (16, LENGTH))
        text = torch.cat([half, half], dim=1)
        scores = model(text)[:, :-1]
        loss = functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
