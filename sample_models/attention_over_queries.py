"""A language model whose attention normalises over the wrong dimension."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal self-attention with four heads."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each of (batch, time, width) attends to."""
        batch, time, width = x.shape
        split = self.queries_keys_values(x).view(batch, time, 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-2, -1) / (width // self.heads) ** 0.5
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-2)  # GS120
        return self.output((weights @ values).transpose(1, 2).reshape(batch, time, width))


torch.manual_seed(0)
embedding, attention, head = nn.Embedding(30, 32), Attention(), nn.Linear(32, 30)
model = nn.Sequential(embedding, attention, head)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(30):
    tokens = torch.randint(0, 30, (16, 17))
    logits = model(tokens[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
