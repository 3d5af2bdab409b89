"""An encoder and a decoder, of which the clip gets one, and the optimizer both.

Watch it with `gradscope run sample_models/partial_clip.py`.
"""

import torch
from torch import nn
from torch.nn import functional


class Translator(nn.Module):
    """Reads symbols, and says the first of them again, each one higher."""

    def __init__(self, symbols: int = 12, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, source: torch.Tensor, length: int) -> torch.Tensor:
        """Map `[batch, time]` to `[batch, length, symbols]`."""
        _, state = self.encoder(self.embedding(source))
        states, _ = self.decoder(state.transpose(0, 1).expand(-1, length, -1), state)
        return self.head(states)


def main() -> None:
    """Train on random sentences."""
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(30):
        source = torch.randint(12, (16, 6))
        target = (source[:, :3] + 1) % 12
        scores = model(source, 3)
        loss = functional.cross_entropy(scores.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.decoder.parameters(), max_norm=0.05)  # GS404
        optimizer.step()


if __name__ == "__main__":
    main()
