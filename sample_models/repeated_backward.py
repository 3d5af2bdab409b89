"""Two losses, of which one is backpropagated on its own and again within the total.

Watch it with `gradscope run sample_models/repeated_backward.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(20, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train a classifier that also says how sure it is."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(20, 32), nn.ReLU())
    classes, certainty = nn.Linear(32, 4), nn.Linear(32, 1)
    model = nn.ModuleList([body, classes, certainty])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for features, target in batches():
        hidden = body(features)
        logits = classes(hidden)
        class_loss = functional.cross_entropy(logits, target)
        correct = (logits.argmax(1) == target).float()
        certainty_loss = functional.binary_cross_entropy_with_logits(
            certainty(hidden).squeeze(1), correct
        )
        optimizer.zero_grad()
        class_loss.backward(retain_graph=True)
        total = class_loss + certainty_loss
        total.backward()  # GS308
        optimizer.step()


if __name__ == "__main__":
    main()
