"""The two training steps that everything is measured on, and the unrolled network for growth."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Step:
    """A training step: `loss` runs the forward, the optimizer does the rest."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[], torch.Tensor]
    inputs: torch.Tensor
    """What `loss` calls the model with."""

    def bare(self) -> None:
        """Forward, backward and step, with nothing watching."""
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        length = q.shape[2]
        scores = q @ k.transpose(-2, -1) / q.shape[3] ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return weights @ v


class FusedBlock(Block):
    """Attends by one kernel, as models for GPUs do."""

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class GPT(nn.Module):
    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        vocabulary: int,
        length: int,
        block: type[Block] = Block,
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(
            torch.arange(tokens.shape[1], device=tokens.device)
        )
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt2_shape() -> Step:
    """22 million parameters: 6 layers, width 512, batch 4 x 128."""
    torch.manual_seed(0)
    model = GPT(6, 512, 8, 6000, 128)
    tokens = torch.randint(0, 6000, (4, 129))

    def loss() -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return Step("GPT-2 shape, 22 M", model, optimizer, loss, tokens[:, :-1])


def gpt2_small(device: torch.device) -> Step:
    """124 million parameters: 12 layers, width 768, batch 8 x 1,024, in bfloat16."""
    torch.manual_seed(0)
    model = GPT(12, 768, 12, 50257, 1024, FusedBlock).to(device)
    tokens = torch.randint(0, 50257, (8, 1025), device=device)

    def loss() -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
            return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return Step("GPT, 124 M", model, optimizer, loss, tokens[:, :-1])


def deep_transformer(layers: int) -> Step:
    """Many blocks of little work: a graph of some 26 measured tensors a block."""
    torch.manual_seed(0)
    model = GPT(layers, 16, 2, 50, 8)
    tokens = torch.randint(0, 50, (2, 9))

    def loss() -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return Step(f"{layers} blocks", model, optimizer, loss, tokens[:, :-1])


def small_mlp() -> Step:
    """24 layers of width 64, batch 16: a step in which bookkeeping dominates."""
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(24) for m in (nn.Linear(64, 64), nn.ReLU())))
    x, y = torch.randn(16, 64), torch.randn(16, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return Step("24 x 64 MLP", model, optimizer, lambda: functional.mse_loss(model(x), y), x)


def small_mlp_of_adam() -> Step:
    """The same, trained by AdamW."""
    step = small_mlp()
    optimizer = torch.optim.AdamW(step.model.parameters(), lr=1e-3)
    return replace(step, name=f"{step.name}, AdamW", optimizer=optimizer)


def unrolled_rnn(nodes: int) -> Step:
    """A recurrent cell unrolled until its graph has about so many nodes (six a time step)."""
    torch.manual_seed(0)
    cell = nn.RNNCell(16, 16)
    x = torch.randn(4, 16)

    def loss() -> torch.Tensor:
        hidden = torch.zeros(4, 16)
        for _ in range(nodes // 6):
            hidden = cell(x, hidden)
        return hidden.square().mean()

    return Step(f"{nodes} nodes", cell, torch.optim.SGD(cell.parameters(), lr=1e-3), loss, x)
