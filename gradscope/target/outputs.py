"""Finds the loss in a model's output, or the tensor to make a loss of."""

from collections.abc import Mapping
from functools import reduce

import torch

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target.structures import describe, named_tensors


class UnusableLossError(GradscopeError):
    """Backward cannot start from the result of the forward.

    Args:
        what: What is wrong.
        cause: The cause.
        help: One thing to try.
        subject: The result, as `loss_fn(output, target)`.
        loss: The tensor, if there is one.
    """

    def __init__(
        self,
        what: str,
        *,
        cause: str | None = None,
        help: str | None = None,
        subject: str = "",
        loss: torch.Tensor | None = None,
    ) -> None:
        super().__init__(what, cause=cause, help=help)
        self.subject = subject
        self.loss = loss


class NoGradientError(UnusableLossError):
    """The model's output does not require grad: no gradient can flow back from it."""


class FrozenModelError(NoGradientError):
    """No parameter requires grad."""


class NonScalarError(UnusableLossError):
    """The loss has more than one element, or none."""


_LEAVE_INFERENCE = "do not compute the loss under torch.inference_mode()"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTensor:
    """A tensor of an output, with the expression that reaches it."""

    name: str
    """Expression, as `output.logits` or `output[0]`."""
    tensor: torch.Tensor


def own_loss(output: object) -> NamedTensor | None:
    """Return the loss that a model computed itself; None if it has none.

    It is `output.loss` or `output["loss"]`; an output that is itself one scalar that requires grad;
    the only such scalar of a tuple, as in `return logits, loss`; or the sum of several named
    losses, as detection models return them.

    Raises:
        GradscopeError: There are several scalars, and it is ambiguous which is the loss.
    """
    if isinstance(output, Mapping) and isinstance(output.get("loss"), torch.Tensor):
        # The keys of transformers' outputs are attributes, too.
        is_class = getattr(output, "loss", None) is output["loss"]
        name = "output.loss" if is_class else "output['loss']"
        return NamedTensor(name=name, tensor=output["loss"])
    loss = None if isinstance(output, torch.Tensor) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return NamedTensor(name="output.loss", tensor=loss)
    scalars = _scalars(output)
    if len(scalars) > 1 or (scalars and _are_losses(scalars)):
        return _combined(scalars)
    # A scalar of a dict has a name, and that name is not `loss`.
    may_hold_loss = isinstance(output, torch.Tensor | tuple | list)
    return scalars[0] if may_hold_loss and scalars else None


def first_trainable(output: object) -> NamedTensor:
    """Return the first floating-point or complex tensor of an output that requires grad.

    If it is one of several scalars, their order means nothing: they count as losses.

    Raises:
        NoGradientError: There is none.
        GradscopeError: There are several scalars, and it is ambiguous which is the loss.
    """
    scalars = _scalars(output)
    for name, tensor in named_tensors(output, "output"):
        if tensor.requires_grad:
            is_one_of_several = tensor.dim() == 0 and len(scalars) > 1
            found = NamedTensor(name=name, tensor=tensor)
            return _combined(scalars) if is_one_of_several else found
    found_none = [tensor for _, tensor in named_tensors(output, "output")]
    is_inference = any(tensor.is_inference() for tensor in found_none)
    raise NoGradientError(
        f"nothing in the model's output requires grad; it is {describe(output)}",
        cause=_why_no_gradient(is_inference=is_inference),
        help=_LEAVE_INFERENCE
        if is_inference
        else "return a tensor that depends on the parameters, without detach() or no_grad()",
        subject="the model's output",
        loss=next(iter(found_none), None),
    )


def further_trainable(output: object, first: NamedTensor) -> list[NamedTensor]:
    """Return the other trainable tensors that a tuple holds, as `(mean, log_variance)` of a VAE.

    Those of nested containers, such as a recurrent layer's state, are not meant for a loss.
    """
    if not isinstance(output, tuple | list):
        return []
    return [
        NamedTensor(name=f"output[{position}]", tensor=tensor)
        for position, tensor in enumerate(output)
        if isinstance(tensor, torch.Tensor)
        and tensor.requires_grad
        and tensor is not first.tensor
        and (tensor.is_floating_point() or tensor.is_complex())
    ]


def named_terms(value: object, loss: torch.Tensor) -> tuple[tuple[str, torch.Tensor], ...]:
    """Return the scalars named in a mapping besides the loss, as `recon` and `kl`."""
    if not isinstance(value, Mapping):
        return ()
    return tuple(
        (path.strip(".[]'\""), tensor)
        for path, tensor in named_tensors(value, "")
        if tensor.numel() == 1 and tensor.requires_grad and tensor is not loss
    )


def _scalars(output: object) -> list[NamedTensor]:
    """Return the tensors of an output from which backward could start."""
    return [
        NamedTensor(name=name, tensor=tensor)
        for name, tensor in named_tensors(output, "output")
        # Not one element of any shape: predictions of one example may be `[1]`, and are no loss.
        if tensor.dim() == 0 and tensor.requires_grad
    ]


def _are_losses(scalars: list[NamedTensor]) -> bool:
    return all("loss" in scalar.name.lower() for scalar in scalars)


def _combined(scalars: list[NamedTensor]) -> NamedTensor:
    if not _are_losses(scalars):
        raise GradscopeError(
            f"the output holds {len(scalars)} scalars, and it is ambiguous which is the loss: "
            + ", ".join(scalar.name for scalar in scalars),
            help="write in the file:  def compute_loss(model, batch): return loss",
        )
    totals = [scalar for scalar in scalars if "total" in scalar.name.lower()]
    if len(scalars) == 1 or len(totals) == 1:
        # A total contains its terms already.
        return (totals or scalars)[0]
    return NamedTensor(
        name="sum of " + ", ".join(scalar.name for scalar in scalars),
        # Not `sum`, which starts with 0: adding to it would be a further node of the graph.
        tensor=reduce(torch.add, [scalar.tensor for scalar in scalars]),
    )


def checked_loss(value: object, made_by: str) -> torch.Tensor:
    """Return the loss as one real element that requires grad.

    Args:
        value: The loss of user code; a mapping has it under `loss`.
        made_by: The code that made it, for the message.

    Raises:
        GradscopeError: Backward cannot start from it.
    """
    loss = value["loss"] if isinstance(value, Mapping) and "loss" in value else value
    if not isinstance(loss, torch.Tensor):
        raise _not_tensor(loss, made_by)
    # Any shape of one element, as backward takes it: `[1]`, too.
    if loss.numel() != 1:
        raise NonScalarError(
            f"{made_by} is {describe(loss)}, not a scalar",
            cause="backward starts from one number",
            help="reduce it, as with .mean() or .sum(), or give --grad-output ones",
            subject=made_by,
            loss=loss,
        )
    if loss.dtype.is_complex:
        raise GradscopeError(
            f"{made_by} is {describe(loss)}, and backward needs a real number",
            help="make it real, as with .abs() or .real",
        )
    if not loss.requires_grad:
        raise NoGradientError(
            f"{made_by} has no grad_fn: no gradient can flow from it",
            cause=_why_no_gradient(is_inference=loss.is_inference()),
            help=_LEAVE_INFERENCE
            if loss.is_inference()
            else "look for detach(), .data, .item(), argmax() or torch.no_grad() before it",
            subject=made_by,
            loss=loss,
        )
    return loss


def _not_tensor(value: object, made_by: str) -> GradscopeError:
    tensors = list(named_tensors(value, ""))
    if not tensors:
        kind = type(value).__name__
        return GradscopeError(
            f"{made_by} is {kind}, expected a tensor", help=_not_tensor_help(value)
        )
    count = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
    are_terms = all(tensor.numel() == 1 for _, tensor in tensors)
    listed = ", ".join(path.strip(".[]'\"") for path, _ in tensors)
    return GradscopeError(
        f"{made_by} returned a {type(value).__name__} of {count}: "
        + (listed if isinstance(value, Mapping) else describe(value)),
        cause="backward starts from one number",
        help="return their sum" if are_terms and len(tensors) > 1 else "return only the loss",
    )


def _not_tensor_help(value: object) -> str:
    if value is None:
        return "end the function with: return loss"
    if isinstance(value, int | float):
        return "return the tensor itself, not loss.item()"
    return "return one tensor, the sum of the terms"


def _why_no_gradient(*, is_inference: bool) -> str | None:
    if is_inference:
        return "it was made under torch.inference_mode(), which records no graph"
    if torch.is_grad_enabled():
        return None
    return "gradients are disabled (torch.set_grad_enabled(False) or no_grad())"
