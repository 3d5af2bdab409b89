"""Explains why a model's forward failed on its inputs."""

from collections.abc import Mapping
from traceback import walk_tb

import torch
from torch import nn

from gradscope.target import members
from gradscope.target.calling import forward_signature
from gradscope.target.layer_inputs import (
    Convolution,
    InputLayer,
    first_layer,
    guess_input,
    layer_title,
)
from gradscope.target.members import plain
from gradscope.target.structures import describe_tensor, named_tensors
from gradscope.target.user_code import Advice


def signature_text(model: nn.Module) -> str:
    """Return the declaration of the model's forward: `Net.forward(self, x, mask=None)`."""
    parameters = [
        str(parameter.replace(annotation=parameter.empty))
        for parameter in forward_signature(model).parameters.values()
    ]
    return f"{class_name(model)}.forward({', '.join(['self', *parameters])})"


def class_name(model: nn.Module) -> str:
    """Return the class of the user's model, behind `torch.compile` and data-parallel wrappers."""
    inner = plain(model)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner = model.module
    return type(model).__name__ if inner is model else class_name(inner)


def explain_forward(
    model: nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    error: BaseException,
) -> Advice:
    """Return why a forward failed on these arguments, as far as layers and message show."""
    tensors = [tensor for _, tensor in named_tensors((args, kwargs), "")]
    listed = _explain_lists(args, kwargs) if isinstance(error, TypeError | AttributeError) else None
    if listed is not None:
        return listed
    if isinstance(error, TypeError):
        return _explain_arguments(model, args, kwargs)
    if isinstance(error, torch.OutOfMemoryError):
        return Advice(help="use a smaller batch, or --device cpu")
    if "more than 1 value per channel" in str(error):
        return Advice(
            cause="batch normalisation in train mode needs more than one example",
            help="use a larger batch, or --mode eval",
        )
    if not tensors:
        return Advice()
    return _explain_dtype(model, tensors) or _explain_layer(model, error) or Advice()


def _explain_lists(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Advice | None:
    """Return advice on numbers outside tensors, as tokenizers and numpy return them."""
    for key, value in (*enumerate(args), *kwargs.items()):
        kind = type(value).__name__
        if kind == "ndarray" or (isinstance(value, list) and _is_number(value)):
            return Advice(
                cause=f"batch[{key!r}] is {'an' if kind == 'ndarray' else 'a'} {kind}",
                help="make it a tensor: torch.tensor(...)",
            )
    return None


def _is_number(value: object) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float)


def _explain_arguments(
    model: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Advice:
    try:
        # A `TypeError` may come from inside: only a misfit is explained.
        forward_signature(model).bind(*args, **kwargs)
    except TypeError as misfit:
        return Advice(
            cause=f"{signature_text(model)} does not fit this batch: {misfit}",
            help="name the inputs: --input name=shape for each, or make the batch a dict",
        )
    return Advice()


def _explain_dtype(model: nn.Module, tensors: list[torch.Tensor]) -> Advice | None:
    weights = {p.dtype for p in members.parameters(model) if p.dtype.is_floating_point}
    wrong = [t for t in tensors if t.is_floating_point() and t.dtype not in weights]
    layer = first_layer(model)
    # An embedding takes whole numbers: the type of its weights is that of no input.
    if len(weights) != 1 or not wrong or isinstance(layer and layer.module, nn.Embedding):
        return None
    given = str(wrong[0].dtype).removeprefix("torch.")
    wanted = str(weights.pop()).removeprefix("torch.")
    return Advice(
        cause=f"the input is {given}, the parameters are {wanted}",
        help=f"--dtype {wanted} converts both",
    )


def _explain_layer(model: nn.Module, error: BaseException) -> Advice | None:
    """Return the input that the raising layer expects; None if it got that."""
    layer, tensor = None, None
    # The innermost layer wins: the outer ones only passed the input on.
    for frame, _ in walk_tb(error.__traceback__):
        owner, given = frame.f_locals.get("self"), frame.f_locals.get("input")
        if isinstance(owner, InputLayer) and isinstance(given, torch.Tensor):
            layer, tensor = owner, given
    wish = None if layer is None or tensor is None else _unmet_wish(layer, tensor)
    if layer is None or tensor is None or wish is None:
        return None
    first = first_layer(model)
    is_first = first is not None and first.module is layer
    name = next((name for name, module in members.named_modules(model) if module is layer), "")
    guess = guess_input(model) if is_first else None
    return Advice(
        cause=f"{'first layer' if is_first else name or 'layer'} {layer_title(layer)} "
        f"expects {wish}, its input is {describe_tensor(tensor)}",
        help=None if guess is None else f"--input {guess}",
    )


def _unmet_wish(module: InputLayer, tensor: torch.Tensor) -> str | None:
    match module:
        case nn.Embedding() | nn.EmbeddingBag():
            return _unmet_tokens(module, tensor)
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return _unmet_channels(module, tensor)
        case _ if not tensor.is_floating_point() and not tensor.is_complex():
            return "floating input"
        case nn.RNNBase() if tensor.shape[-1:] != (module.input_size,):
            return f"{_counted(module.input_size, 'feature')} in the last dimension"
        case nn.Linear() if tensor.shape[-1:] != (module.in_features,):
            return f"{_counted(module.in_features, 'feature')} in the last dimension"
        case _:
            return None


def _unmet_tokens(module: nn.Embedding | nn.EmbeddingBag, tensor: torch.Tensor) -> str | None:
    if tensor.dtype not in (torch.int64, torch.int32):
        return "token numbers (int64)"
    if tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < module.num_embeddings:
        return f"token numbers from 0 to {module.num_embeddings - 1}"
    return None


def _unmet_channels(module: Convolution, tensor: torch.Tensor) -> str | None:
    spatial = len(module.kernel_size)
    if tensor.dim() not in (spatial + 1, spatial + 2):
        return f"{spatial + 2} dimensions (batch, channels, ...)"
    if tensor.shape[-spatial - 1] != module.in_channels:
        return _counted(module.in_channels, "channel")
    return None if tensor.is_floating_point() or tensor.is_complex() else "floating input"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
