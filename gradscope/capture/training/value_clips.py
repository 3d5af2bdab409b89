"""What `clip_grad_value_` is going to do to gradients, measured before it does."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gradscope.capture.reading import is_plain_float


def value_numbers(parameters: Sequence[Tensor], limit: float) -> dict[str, object]:
    """Return the norm of all gradients before and after, and the cosine between the two.

    They stay on the gradients' device. Empty where some gradient cannot be measured.
    """
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients or not all(map(is_plain_float, gradients)):
        return {}
    sums = [_sums(gradient.detach(), limit) for gradient in gradients]
    device = sums[0].device
    before, after, product = torch.stack([one.to(device) for one in sums]).sum(dim=0).unbind()
    return {
        "norm": before.sqrt(),
        "norm_after": after.sqrt(),
        "cosine": product / (before * after).sqrt(),
    }


def _sums(gradient: Tensor, limit: float) -> Tensor:
    """Return the squares of elements before and after, and the products of the two, summed up."""
    # Not every accelerator knows float64.
    wide = torch.float64 if gradient.device.type in ("cpu", "cuda") else torch.float32
    sizes = gradient.abs()
    kept = sizes.clamp(max=limit)
    return torch.stack(
        [
            torch.linalg.vector_norm(sizes, dtype=wide).square(),
            torch.linalg.vector_norm(kept, dtype=wide).square(),
            torch.linalg.vecdot(sizes.flatten().to(wide), kept.flatten().to(wide)),
        ]
    )
