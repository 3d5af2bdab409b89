"""The ways from a model and a batch to a loss, the named losses among them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from gradscope.errors import GradscopeError, GuessNeededError
from gradscope.frozen import dataclass
from gradscope.target import members
from gradscope.target.batches import spec_like
from gradscope.target.calling import (
    TARGET_NAMES,
    Call,
    SecondArgument,
    can_take,
    divide_batch,
    forward_signature,
    second_argument,
    signature_of,
)
from gradscope.target.guessed_loss import guess_loss
from gradscope.target.hints import explain_forward
from gradscope.target.notation import LossName
from gradscope.target.outputs import (
    NamedTensor,
    checked_loss,
    first_trainable,
    further_trainable,
    named_terms,
    own_loss,
)
from gradscope.target.structures import describe, describe_tensor
from gradscope.target.target import Outcome
from gradscope.target.user_code import UserCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A loss, and how ambiguous shapes were interpreted."""

    loss: torch.Tensor
    reading: str = ""


def cross_entropy(output: torch.Tensor, target: torch.Tensor) -> Compared:
    """Return the cross entropy with the classes in dimension 1, as in torch, or in the last one.

    The last dimension is used if only that fits: `[batch, sequence, classes]` with a target of
    `[batch, sequence]`, as of language models.

    Raises:
        UserCodeError: torch rejects the shapes.
    """
    # With two dimensions, the last one is dimension 1.
    is_last = output.dim() > 2 and target.shape == output.shape[:-1]
    is_second = target.shape == output.shape[:1] + output.shape[2:]
    reading = ", classes in dimension 1" if is_last and is_second else ""
    fits = f"output {describe_tensor(output)}, target {describe_tensor(target)}"
    if is_last and not is_second:
        output, target = output.flatten(0, -2), target.flatten()
    with UserCode(f"--loss cross-entropy failed with {fits}"):
        return Compared(loss=functional.cross_entropy(output, target), reading=reading)


def mean_squared_error(output: torch.Tensor, target: torch.Tensor) -> Compared:
    """Return the mean of the squared absolute differences.

    Raises:
        GradscopeError: The shapes differ.
    """
    # torch would broadcast them, and only warn.
    if output.shape != target.shape:
        raise GradscopeError(
            "--loss mse needs output and target of the same shape",
            cause=f"the output is {describe_tensor(output)}, the target {describe_tensor(target)}",
            help="reshape the target, as with target.unsqueeze(1) or output.squeeze(1)",
        )
    difference = output - target
    # The square of a complex number is complex, from which backward cannot start.
    real = difference.abs() if difference.is_complex() else difference
    return Compared(loss=real.square().mean())


def target_help(model: nn.Module, batch: object, output: torch.Tensor, *, has_classes: bool) -> str:
    """Return the `--input` option that adds a target to a batch.

    Args:
        model: The model, whose last layer shows the dimension of the classes.
        batch: The existing batch; the command line must describe all of it.
        output: The tensor to compare with the target.
        has_classes: Whether the target contains class indices. Otherwise it has the output's shape.
    """
    spec = ",".join(map(str, output.shape))
    if has_classes and output.dim() > 1:
        position = _class_dimension(model, output)
        sizes = [size for at, size in enumerate(output.shape) if at != position]
        spec = f"int64[0,{output.shape[position]}]:{','.join(map(str, sizes))}"
    if isinstance(batch, Mapping):
        return f"give the target as another input: --input labels={spec}"
    given = " ".join(f"--input {spec_like(tensor)}" for tensor in _tensors(batch))
    return f"give the target as the last input: {given} --input {spec}"


def _tensors(batch: object) -> list[torch.Tensor]:
    items = batch if isinstance(batch, tuple | list) else [batch]
    return [item for item in items if isinstance(item, torch.Tensor)]


def _class_dimension(model: nn.Module, output: torch.Tensor) -> int:
    layers = [m for m in members.modules(model) if isinstance(m, nn.Linear | _ConvNd)]
    is_per_position = bool(layers) and isinstance(layers[-1], nn.Linear)
    return output.dim() - 1 if is_per_position else 1


NOTHING = SecondArgument(wanted="nothing", name="target")

_TARGET = SecondArgument(wanted="target", name="target")


class Objective(Protocol):
    """Runs a model on a batch, up to the start of backward."""

    @property
    def second(self) -> SecondArgument | None:
        """The argument that it needs besides the inputs; None if it divides the batch itself."""

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Run the forward once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeLoss:
    """The user's own `compute_loss(model, batch)`."""

    function: Callable[..., object]
    name: str
    second: SecondArgument | None = None

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Call the function with the model and the batch."""
        text = f"{self.name}(model, batch)"
        with UserCode(f"{text} failed with batch {describe(batch)}"):
            value = self.function(model, batch)
        return _scalar(checked_loss(value, text), text, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """The model's own `training_step(batch, batch_idx)`, as in Lightning modules."""

    function: Callable[..., object]
    second: SecondArgument | None = None

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Call the method with the batch, as the first one of an epoch."""
        text = "model.training_step(batch, 0)"
        with UserCode(f"{text} failed with batch {describe(batch)}"):
            value = self.function(batch, 0)
        return _scalar(checked_loss(value, text), text, value)


def training_step(model: nn.Module) -> TrainingStep | None:
    """Return the objective of a model with a `training_step`; None for others."""
    function = getattr(model, "training_step", None)
    if not callable(function) or not can_take(signature_of(function), 2):
        return None
    return TrainingStep(function=function)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFunction:
    """The user's `loss_fn(output, target)`, `loss_fn(output, batch)` or `loss_fn(output)`.

    If the parameters are named as in `loss_fn(y_true, y_pred)`, the target comes first.
    """

    function: Callable[..., object]
    name: str

    @property
    def second(self) -> SecondArgument:
        """The argument, by the function's signature."""
        return second_argument(self.function)

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Run the model and call the function on its output."""
        second = self.second  # reads the function's source
        call = divide_batch(batch, forward_signature(model), second)
        output = run_model(model, call)
        if call.second_name == "batch" and second.name in TARGET_NAMES:
            _check_reconstruction(self.name, output, call.second)
        named = [("output", output)]
        if call.second_name is not None:
            named.insert(0 if second.is_before_output else 1, (call.second_name, call.second))
        arguments = tuple(value for _, value in named)
        text = f"{self.name}({', '.join(name for name, _ in named)})"
        given = ", ".join(describe(argument) for argument in arguments)
        with UserCode(f"{text} failed with {given}"):
            value = self.function(*arguments)
        return _scalar(checked_loss(value, text), text, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLoss:
    """A placeholder loss of gradscope, for models without a loss."""

    name: LossName

    @property
    def second(self) -> SecondArgument:
        """A target for losses that compare."""
        return _TARGET if self.name in (LossName.CROSS_ENTROPY, LossName.MSE) else NOTHING

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Run the model and compute the loss of its first trainable tensor."""
        call = divide_batch(batch, forward_signature(model), self.second)
        found = first_trainable(run_model(model, call))
        if self.second.wanted == "nothing":
            real = _real(found.tensor)
            loss = real.mean() if self.name is LossName.MEAN else real.square().sum()
            return _scalar(loss, f"{self.name} of {found.name}")
        target = _target_tensor(self.name, model, batch, found, call)
        compare = cross_entropy if self.name is LossName.CROSS_ENTROPY else mean_squared_error
        compared = compare(found.tensor, target)
        return _scalar(compared.loss, f"{self.name}({found.name}, target){compared.reading}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenGradient:
    """Backward from the output itself, with a vector for the vector-Jacobian product."""

    vector: torch.Tensor | str
    """Tensor with the shape of the output, or `ones` or `randn`."""
    seed: int | None
    second: SecondArgument = NOTHING

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Run the model and shape the vector as its first trainable tensor."""
        call = divide_batch(batch, forward_signature(model), self.second)
        found = first_trainable(run_model(model, call))
        kind = self.vector if isinstance(self.vector, str) else "given"
        return Outcome(
            loss=found.tensor,
            grad_output=self._vector_for(found),
            description=f"{found.name} with grad_output {kind}",
            synthetic=False,
        )

    def _vector_for(self, found: NamedTensor) -> torch.Tensor:
        output = found.tensor
        if isinstance(self.vector, torch.Tensor):
            if self.vector.shape != output.shape:
                raise GradscopeError(
                    f"--grad-output is {describe_tensor(self.vector)}, "
                    f"but {found.name} is {describe_tensor(output)}",
                    help="give it the shape of the output",
                )
            # Autograd takes gradients of the output's device and dtype only.
            return self.vector.to(output.device, output.dtype)
        if self.vector == "ones":
            return torch.ones_like(output, requires_grad=False)
        # A separate generator leaves the model's random stream unchanged.
        generator = torch.Generator().manual_seed(self.seed or 0)
        # On the CPU, because a device draws other numbers from the same seed.
        noise = torch.randn(output.shape, generator=generator, dtype=torch.float32)
        return noise.to(output.device, output.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoss:
    """The loss in the model's output, or a guessed loss if that is allowed."""

    allow_guess: bool
    seed: int | None = 0
    """Seed of guessed targets."""
    second: SecondArgument = NOTHING

    def __call__(self, model: nn.Module, batch: object) -> Outcome:
        """Run the model and find a loss in its output."""
        signature = forward_signature(model)
        call = divide_batch(batch, signature, self.second)
        output = run_model(model, call)
        found = own_loss(output)
        if found is not None:
            return _scalar(checked_loss(found.tensor, found.name), found.name, output)
        trainable = first_trainable(output)
        if not self.allow_guess:
            raise GuessNeededError(
                f"{trainable.name} is {describe_tensor(trainable.tensor)}, not a scalar, "
                "and no loss was found",
                help="--loss cross-entropy, or in the file: def loss_fn(output, batch): ..., or "
                "--allow-guesses",
            )
        # Once more: only a guessed loss uses what the model leaves of the batch.
        with_target = divide_batch(batch, signature, _TARGET)
        guess = guess_loss(
            trainable,
            further_trainable(output, trainable),
            model=model,
            inputs=(call.args, dict(call.kwargs)),
            target=with_target.second if with_target.second_name == "target" else None,
            seed=self.seed,
        )
        return Outcome(
            loss=guess.loss, grad_output=None, description=guess.description, synthetic=True
        )


def _check_reconstruction(name: str, output: object, batch: object) -> None:
    """Check that the output has the batch's shape: the batch is its own target then.

    Raises:
        GradscopeError: It has another shape.
    """
    shape = output.shape if isinstance(output, torch.Tensor) else None
    if isinstance(batch, torch.Tensor) and batch.shape == shape:
        return
    raise GradscopeError(
        f"{name} needs a target, but the batch has none",
        cause=f"the batch is {describe(batch)}, the output {describe(output)}",
        help="make the batch a pair (inputs, target), or give two --input, the target last",
    )


def run_model(model: nn.Module, call: Call) -> object:
    """Call the model on its part of the batch.

    Raises:
        UserCodeError: The forward raised.
    """
    given = describe((call.args, dict(call.kwargs)))
    explain = partial(explain_forward, model, call.args, call.kwargs)
    with UserCode(f"forward failed with input {given}", explain):
        return model(*call.args, **call.kwargs)


def _scalar(loss: torch.Tensor, description: str, given: object = None) -> Outcome:
    return Outcome(
        loss=loss,
        grad_output=None,
        description=description,
        synthetic=False,
        terms=named_terms(given, loss),
    )


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs() if tensor.is_complex() else tensor


def _target_tensor(
    name: LossName, model: nn.Module, batch: object, found: NamedTensor, call: Call
) -> torch.Tensor:
    """Return the target of the batch.

    Raises:
        GradscopeError: The batch has none.
    """
    if call.second_name == "target" and isinstance(call.second, torch.Tensor):
        return call.second
    has_classes = name is LossName.CROSS_ENTROPY
    raise GradscopeError(
        f"--loss {name} needs a target, but the batch has none",
        cause=f"{found.name} is {describe_tensor(found.tensor)}",
        help=target_help(model, batch, found.tensor, has_classes=has_classes),
    )
