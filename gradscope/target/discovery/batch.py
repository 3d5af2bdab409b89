"""Finds the batch: on the command line, in the setup, under the file's names, in the model."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

import torch
from torch import nn

from gradscope.errors import GradscopeError, GuessNeededError
from gradscope.frozen import dataclass
from gradscope.target.batches import Batches, LoadedBatches, is_batch_file, make_inputs, read_batch
from gradscope.target.calling import TARGET_NAMES, forward_signature
from gradscope.target.discovery.guessed_inputs import guess_inputs
from gradscope.target.discovery.importing import Source
from gradscope.target.discovery.values import build, evaluate, required_parameters
from gradscope.target.hints import class_name, signature_text
from gradscope.target.layer_inputs import guess_input, vocabulary
from gradscope.target.members import plain
from gradscope.target.notation import parse_expression
from gradscope.target.options import TargetOptions
from gradscope.target.structures import named_tensors
from gradscope.target.user_code import nearest

_BATCH_NAMES = ("build_batch", "batch", "example_inputs")
_LOADER_NAMES = ("dataloader", "train_loader", "train_dataloader")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBatches:
    """The batches, and a note on how they were guessed."""

    batches: Batches
    guess: str | None = None
    """Description of the guess; None for the user's own batch."""


def find_batch(
    source: Source, setup: Mapping[str, object], model: nn.Module, options: TargetOptions
) -> FoundBatches:
    """Return the batches; `--batch` and `--input` override what the file offers.

    Without any, inputs are guessed if the options allow it.

    Raises:
        GradscopeError: There is no batch, or it is unreadable.
        UserCodeError: The code that makes it raised.
    """
    if options.batch is not None and options.inputs:
        raise GradscopeError("the batch is specified twice", help="drop --batch or --input")
    if options.inputs:
        made = make_inputs(options.inputs, seed=options.seed, vocabulary=vocabulary(model))
        _check_names(made, model)
        return FoundBatches(batches=Batches(made))
    if options.batch is None:
        offered = _offered_batch(source, setup, model)
        return _guessed(model, options) if offered is None else FoundBatches(batches=offered)
    if is_batch_file(options.batch):
        return FoundBatches(batches=Batches(read_batch(options.batch)))
    value = evaluate(source, parse_expression(options.batch))
    return FoundBatches(batches=to_batches(value, options.batch, source.location))


def _guessed(model: nn.Module, options: TargetOptions) -> FoundBatches:
    found = guess_inputs(model, options.seed)
    if found is None:
        raise _no_batch(model)
    if not options.allow_guesses:
        missing = _no_batch(model, f"{found.options}, or --allow-guesses")
        raise GuessNeededError(missing.what, cause=missing.cause, help=missing.help)
    note = f"guessed the batch: {found.options}, from {found.reason}"
    return FoundBatches(batches=Batches(found.batch), guess=note)


def _check_names(batch: object, model: nn.Module) -> None:
    """Check that no name is a misspelled parameter of forward.

    A name unlike all of them may be meant for the loss.

    Raises:
        GradscopeError: A name is misspelled.
    """
    parameters = forward_signature(model).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not isinstance(batch, Mapping):
        return
    # With **kwargs, a name that is only roughly similar may be a separate keyword.
    likeness = 0.85 if takes_any else 0.6
    free = [name for name in parameters if name not in batch]
    for name in batch:
        meant = nearest(name, free, likeness=likeness)
        if name not in parameters and name not in TARGET_NAMES and meant is not None:
            raise GradscopeError(
                f"--input {name!r} is no parameter of {class_name(model)}.forward",
                help=f"did you mean {meant!r}?",
            )


def _offered_batch(source: Source, setup: Mapping[str, object], model: nn.Module) -> Batches | None:
    if "batch" in setup:
        return to_batches(setup["batch"], "batch", source.location)
    for name in (*_BATCH_NAMES, *_LOADER_NAMES):
        value = getattr(source.module, name, None)
        # A file may import a module called `batch`.
        if value is not None and not inspect.ismodule(value):
            return to_batches(value, name, source.location)
    dummy = _dummy_inputs(model)
    return None if dummy is None else Batches(dummy)


def to_batches(value: object, name: str, location: str) -> Batches:
    """Return the batches of a value: factories are called, loaders give one after another.

    Raises:
        GradscopeError: The loader is empty, or the factory needs arguments.
        UserCodeError: Either raised.
    """
    if _is_loader(value):
        return LoadedBatches(value, name, location)
    # Some containers of tensors are callable.
    if callable(value) and not _holds_tensors(value):
        return to_batches(build(value, name, location, "--batch"), f"{name}()", location)
    return Batches(value)


def _is_loader(value: object) -> TypeGuard[Iterable[object]]:
    if isinstance(value, torch.utils.data.DataLoader | Iterator):
        return True
    is_container = isinstance(value, Mapping | Sequence | torch.Tensor | str)
    return hasattr(value, "__iter__") and not is_container and not _holds_tensors(value)


def _holds_tensors(value: object) -> bool:
    return any(True for _ in named_tensors(value, "")) or isinstance(value, nn.Module)


def _dummy_inputs(model: nn.Module) -> dict[str, object] | None:
    """Return the example input of Hugging Face models, if their forward accepts it.

    Language models compute a loss if they get labels: their own tokens are used.
    """
    inputs = getattr(model, "dummy_inputs", None)
    parameters = forward_signature(model).parameters
    if not isinstance(inputs, Mapping) or not any(key in parameters for key in inputs):
        return None
    batch = dict(inputs)
    is_language_model = any(part in type(model).__name__ for part in ("LM", "Generation"))
    if is_language_model and "labels" in parameters and "input_ids" in batch:
        # transformers shifts the labels itself.
        batch.setdefault("labels", batch["input_ids"])
    return batch


def _no_batch(model: nn.Module, advice: str | None = None) -> GradscopeError:
    needed = [p.name for p in required_parameters(_bound_forward(model))]
    guess = guess_input(model) or "SHAPE, such as 1,3,224,224"
    if len(needed) > 1:
        others = " ".join(f"--input {name}=SHAPE" for name in needed[1:])
        help_ = f"--input {needed[0]}={guess} {others}"
    else:
        help_ = f"--input {guess}"
    return GradscopeError(
        f"no batch for {signature_text(model)}",
        cause="looked for build_batch, batch, example_inputs, dataloader, train_loader, "
        "train_dataloader",
        help=advice or help_,
    )


def _bound_forward(model: nn.Module) -> Callable[..., object]:
    return plain(model).forward
