"""A state that is carried from step to step without being detached.

Watch it with `gradscope run sample_models/growing_graph.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(60, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train a reader of a stream whose memory fades by a tenth a step."""
    torch.manual_seed(0)
    embed, classes = nn.Linear(20, 32), nn.Linear(32, 4)
    parameters = [*embed.parameters(), *classes.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.02)
    memory = torch.zeros(32, 32)
    for features, target in batches():
        memory = torch.tanh(embed(features) + 0.9 * memory)  # GS309
        loss = functional.cross_entropy(classes(memory), target)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()


if __name__ == "__main__":
    main()
