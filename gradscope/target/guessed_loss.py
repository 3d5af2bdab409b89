"""Guesses a loss from the form of a model's output, for targets without one."""

from collections.abc import Iterator, Sequence
from functools import reduce

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from gradscope.frozen import dataclass
from gradscope.target import members
from gradscope.target.outputs import NamedTensor
from gradscope.target.structures import named_tensors

_EQUAL = 1e-3
"""Tolerance of the sum of probabilities, which half precision rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedLoss:
    """A loss that fits an output."""

    loss: torch.Tensor
    description: str


def guess_loss(
    output: NamedTensor,
    further: Sequence[NamedTensor],
    *,
    model: nn.Module,
    inputs: object,
    target: object,
    seed: int | None,
) -> GuessedLoss:
    """Return the loss that fits an output best.

    The target of the batch is used if there is one. Otherwise, an output with the shape of an
    input is compared with it (an autoencoder). Class scores are compared with drawn classes, and
    other numbers with drawn ones. Half precision is widened. The mean of squares of each further
    output is added, as parameters that only these use are not unused.

    Args:
        output: The first trainable tensor of the output.
        further: Other trainable tensors of the output.
        model: The model; its layers tell which dimension holds classes.
        inputs: The arguments of forward.
        target: The part of the batch that forward does not take; None if there is none.
        seed: Seed of the drawn targets.
    """
    first = _guess_for(output, model=model, inputs=inputs, target=target, seed=seed)
    others = [_mean_of_squares(other) for other in further]
    return reduce(_plus, others, first)


def _plus(one: GuessedLoss, other: GuessedLoss) -> GuessedLoss:
    return GuessedLoss(
        loss=one.loss + other.loss, description=f"{one.description} + {other.description}"
    )


def _mean_of_squares(output: NamedTensor) -> GuessedLoss:
    real = output.tensor.abs() if output.tensor.is_complex() else _widened(output.tensor)
    return GuessedLoss(loss=real.square().mean(), description=f"mean of squares of {output.name}")


def _guess_for(
    output: NamedTensor, *, model: nn.Module, inputs: object, target: object, seed: int | None
) -> GuessedLoss:
    tensor, name = _widened(output.tensor), output.name
    if tensor.is_complex():
        return _mean_of_squares(output)
    given = _loss_with_target(tensor, name, target)
    if given is not None:
        return given
    # A generator of its own leaves the random numbers of the model alone.
    generator = torch.Generator().manual_seed(seed or 0)
    for number, (path, value) in enumerate(named_tensors(inputs, "input")):
        if value.shape == tensor.shape and value.is_floating_point() and tensor.dim() > 1:
            source = "the input" if number == 0 else path
            loss = functional.mse_loss(tensor, value.detach().to(tensor.dtype))
            return GuessedLoss(loss=loss, description=f"mean squared error of {name} to {source}")
    position = _class_dimension(tensor, model, inputs)
    if position is not None:
        return _loss_of_classes(tensor, name, position, generator)
    return _loss_of_numbers(tensor, name, generator)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Convert half precision to float32, in which a mean of squares stays in range."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _loss_with_target(output: torch.Tensor, name: str, target: object) -> GuessedLoss | None:
    """Return the loss of an output and the batch's target; None if they do not fit."""
    if not isinstance(target, torch.Tensor):
        return None
    if target.is_floating_point() and target.numel() == output.numel():
        shaped = target.to(output.dtype).reshape(output.shape)
        return GuessedLoss(
            loss=functional.mse_loss(output, shaped),
            description=f"mean squared error of {name} to the target",
        )
    if target.dtype is not torch.int64:
        return None
    # torch has classes in dimension 1; language models have them last.
    for position in (1, output.dim() - 1):
        if output.dim() > 1 and _without(output, position) == target.shape:
            scores = output.movedim(position, -1).flatten(0, -2)
            wanted = target.flatten()
            if wanted.numel() and int(wanted.min()) >= 0 and int(wanted.max()) < scores.shape[-1]:
                return GuessedLoss(
                    loss=_classification(scores, wanted),
                    description=f"cross entropy of {name} and the target",
                )
    return None


def _without(output: torch.Tensor, position: int) -> torch.Size:
    return output.shape[:position] + output.shape[position + 1 :]


def _class_dimension(output: torch.Tensor, model: nn.Module, inputs: object) -> int | None:
    """Return the dimension of class scores; None if the output does not look like classes."""
    if output.dim() == 2:
        return 1 if output.shape[1] > 1 else None
    if output.dim() == 3:
        sizes = {m.num_embeddings for m in members.modules(model) if isinstance(m, nn.Embedding)}
        return 2 if output.shape[2] in sizes else None
    if output.dim() == 4 and output.shape[1] > 1 and _is_last_convolution(model):
        areas = {value.shape[2:] for _, value in _images(inputs)}
        return 1 if output.shape[2:] in areas else None
    return None


def _images(inputs: object) -> Iterator[tuple[str, torch.Tensor]]:
    return (found for found in named_tensors(inputs, "") if found[1].dim() == 4)


def _is_last_convolution(model: nn.Module) -> bool:
    layers = [m for m in members.modules(model) if isinstance(m, nn.Linear | _ConvNd)]
    return bool(layers) and isinstance(layers[-1], _ConvNd)


def _loss_of_classes(
    output: torch.Tensor, name: str, position: int, generator: torch.Generator
) -> GuessedLoss:
    scores = output.movedim(position, -1).flatten(0, -2)
    drawn = torch.randint(scores.shape[1], (scores.shape[0],), generator=generator)
    return GuessedLoss(
        loss=_classification(scores, drawn.to(scores.device)),
        description=f"cross entropy of {name} and drawn classes",
    )


def _classification(scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of logits, log-probabilities or probabilities `[rows, classes]`."""
    values = scores.detach()
    # A model that ends in a softmax must not get a second one from `cross_entropy`.
    if _are_ones(values.exp().sum(1)):
        return functional.nll_loss(scores, classes)
    if bool((values >= 0).all()) and _are_ones(values.sum(1)):
        tiny = torch.finfo(scores.dtype).tiny
        # Clamped, because the logarithm of a probability of 0 is infinite.
        return functional.nll_loss(scores.clamp_min(tiny).log(), classes)
    return functional.cross_entropy(scores, classes)


def _are_ones(sums: torch.Tensor) -> bool:
    return bool(((sums - 1).abs() < _EQUAL).all())


def _loss_of_numbers(output: torch.Tensor, name: str, generator: torch.Generator) -> GuessedLoss:
    values = output.detach()
    if bool(((values > 0) & (values < 1)).all()):
        drawn = torch.randint(2, output.shape, generator=generator).to(output)
        return GuessedLoss(
            loss=functional.binary_cross_entropy(output, drawn),
            description=f"binary cross entropy of {name} and drawn labels",
        )
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.float32).to(output)
    return GuessedLoss(
        loss=functional.mse_loss(output, drawn),
        description=f"mean squared error of {name} to drawn numbers",
    )
