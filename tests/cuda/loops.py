"""Models and training loops for a device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

WAYS = {
    "events": {"tensors": False},
    "measured": {"tensors": False, "budget": None},
    "captured": {"tensor_every": 1, "budget": None},
}
"""How much of each step is recorded."""

OnLoss = Callable[[Tensor], object]


class Attention(nn.Module):
    """A block of a transformer, and a head: large enough for kernels of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(512, 128)
        self.block = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.head = nn.Linear(128, 512)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.block(self.tokens(tokens)))


class Convolutions(nn.Module):
    """Convolutions with batch normalisation, in channels-last order."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 32, 3)
        )
        self.head = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layers(images.contiguous(memory_format=torch.channels_last))
        return self.head(x.mean((2, 3)))


@dataclass
class Trained:
    """What is left of a training."""

    losses: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    random: list[Tensor] = field(default_factory=list)

    @staticmethod
    def of(model: nn.Module, losses: list[Tensor]) -> "Trained":
        random = [torch.get_rng_state()]
        if torch.cuda.is_available():
            random.append(torch.cuda.get_rng_state())
        return Trained(losses, [p.detach().clone() for p in model.parameters()], random)

    def is_same(self, other: "Trained") -> bool:
        """Return whether every number is the same, to the last bit."""
        pairs = [*zip(self.losses, other.losses, strict=True)]
        pairs += [*zip(self.weights, other.weights, strict=True)]
        pairs += [*zip(self.random, other.random, strict=True)]
        return all(torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5)) for a, b in pairs)


def losses_of_tokens(device: torch.device) -> tuple[nn.Module, Iterator[Tensor]]:
    """Return a small language model, and its losses in bfloat16."""
    torch.manual_seed(0)
    model = Attention().to(device)

    def losses() -> Iterator[Tensor]:
        while True:
            tokens = torch.randint(512, (8, 33), device=device)
            with torch.autocast(device.type, torch.bfloat16):
                output = model(tokens[:, :-1])
                yield functional.cross_entropy(output.flatten(0, 1), tokens[:, 1:].flatten())

    return model, losses()


def losses_of_images(device: torch.device) -> tuple[nn.Module, Iterator[Tensor]]:
    """Return a small convolutional network, and its losses."""
    torch.manual_seed(0)
    model = Convolutions().to(device)

    def losses() -> Iterator[Tensor]:
        while True:
            images = torch.randn(16, 3, 16, 16, device=device)
            yield functional.cross_entropy(model(images), torch.randint(10, (16,), device=device))

    return model, losses()


KINDS = {"tokens": losses_of_tokens, "images": losses_of_images}


def train(kind: str, device: torch.device, steps: int, on_loss: OnLoss = id) -> Trained:
    """Train without ever waiting for the device, and return what is left."""
    model, losses = KINDS[kind](device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = next(losses)
        on_loss(loss)
        loss.backward()
        optimizer.step()
        seen.append(loss.detach())
    return Trained.of(model, seen)
