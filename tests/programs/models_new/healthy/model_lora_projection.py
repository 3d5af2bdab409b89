import math
import torch
from torch import nn, Tensor


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: float = 8.0):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.empty(base.out_features, rank))
        self.scaling = alpha / rank
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        nn.init.zeros_(self.lora_b)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scaling * (x @ self.lora_a.t() @ self.lora_b.t())


class TunedEncoder(nn.Module):
    def __init__(self, dim=24, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        for p in self.parameters():
            p.requires_grad_(False)
        self.layers = nn.ModuleList(LoRALinear(layer) for layer in self.layers)
        self.head = nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


def build_model():
    torch.manual_seed(31)
    return TunedEncoder()


def build_batch():
    g = torch.Generator().manual_seed(32)
    x = torch.randn(40, 24, generator=g)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
