"""A small language model of twelve transformer blocks that trains well.

The blocks are alike, so the report folds them into one row with the range over all twelve. The
output layer shares its weight with the embedding: one gradient under two names.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCKS = 12
WIDTH = 64
HEADS = 4
CONTEXT = 32
VOCABULARY = 128
"""Tokens are ASCII codes."""

TEXT = (
    "The gradient of a function points in the direction in which it grows fastest; its length "
    "says how fast. Descend against it in small steps, and the function falls. "
)


class Attention(nn.Module):
    """Causal self-attention over several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Mix each position of `[batch, time, width]` with those before it."""
        batch, time, _ = x.shape
        heads = self.query_key_value(x).view(batch, time, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, WIDTH))


class FeedForward(nn.Module):
    """Two layers applied at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.output = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, time, width]` to the same shape."""
        return self.output(functional.gelu(self.up(x)))


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.feed_forward_norm = nn.LayerNorm(WIDTH)
        self.feed_forward = FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, time, width]` to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """Predicts the next token at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(initialise)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids `[batch, time]` to logits `[batch, time, vocabulary]`."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def initialise(module: nn.Module) -> None:
    """Draw weights as GPT-2 does, those that write into the residual stream smaller by depth."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, Attention | FeedForward):
        # `apply` comes to a module after its children: this is the last word.
        nn.init.normal_(module.output.weight, std=0.02 / (2 * BLOCKS) ** 0.5)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return LanguageModel()


def build_batch() -> tuple[Tensor, Tensor]:
    """Four pieces of text, and the same shifted by one: the tokens to predict."""
    ids = torch.tensor([ord(character) for character in TEXT])
    starts = range(0, 4 * CONTEXT, CONTEXT)
    inputs = torch.stack([ids[start : start + CONTEXT] for start in starts])
    targets = torch.stack([ids[start + 1 : start + CONTEXT + 1] for start in starts])
    return inputs, targets


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy over all tokens."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=3e-4)
