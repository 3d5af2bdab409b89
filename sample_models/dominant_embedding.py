"""A small transformer whose embedding makes nearly all of the gradient norm.

The embedding is initialised fifty times smaller than nn.Embedding does, and its output normalised:
the smaller the weights, the larger their gradient. Whatever limit clips the global norm, it is the
embedding that decides when all other layers are cut with it. See it with
`gradscope clip-report sample_models/dominant_embedding.py --max-norm 1`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 32
CONTEXT = 16
VOCABULARY = 64


class Transformer(nn.Module):
    """Predicts the next token of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map `[batch, time]` to scores `[batch * time, vocabulary]`."""
        x = self.norm(self.embedding(tokens))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x).flatten(0, 1)


def build_model() -> Transformer:
    """Return the same weights every time."""
    torch.manual_seed(0)
    return Transformer()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return sequences that count upwards, and the tokens that follow."""
    starts = torch.arange(8)[:, None] * 5
    tokens = (starts + torch.arange(CONTEXT + 1)) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:].flatten()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return Adam with decoupled weight decay."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy."""
    return functional.cross_entropy(output, target)
