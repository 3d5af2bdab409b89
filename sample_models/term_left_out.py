"""A mixture of experts whose balance is never added to the loss."""

import torch
from torch import nn
from torch.nn import functional


class Mixture(nn.Module):
    """Sends each token to the expert with the largest weight."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output of (tokens, width), and the balance of the experts."""
        shares = self.gate(x).softmax(-1)
        weight, chosen = shares.max(-1)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        output = outputs[torch.arange(len(x)), chosen] * weight[:, None]
        load = functional.one_hot(chosen, len(self.experts)).float().mean(0)
        return x + output, len(self.experts) * (load * shares.mean(0)).sum()


torch.manual_seed(0)
mixture, head = Mixture(), nn.Linear(16, 3)
optimizer = torch.optim.AdamW([*mixture.parameters(), *head.parameters()], lr=1e-3)

for _ in range(30):
    x = torch.randn(64, 16)
    hidden, balance = mixture(x)
    loss = functional.cross_entropy(head(hidden), x[:, :3].argmax(1))  # GS732
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
