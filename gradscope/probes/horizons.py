"""Measures how far back in time the gradients of recurrent layers reach."""

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from gradscope.capture.observed_calls import Args
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.forward import HorizonRecord
from gradscope.target import members

SHORTEST = 4
"""Minimum length of a measured sequence."""
_SEED = 0
"""Seed of the generator that combines the outputs."""


@dataclass(slots=True)
class _RecordedCall:
    """The first call of a recurrent layer."""

    inputs: Tensor | PackedSequence | None = None
    state: object = None
    outputs: Tensor | None = None
    calls: int = 0


def probe_horizons(context: ProbeContext) -> str | None:
    """Record how the last output of each recurrent layer of torch depends on each time step."""
    layers = [module for module in context.named.modules if isinstance(module, nn.RNNBase)]
    if not layers:
        return None
    if context.opaque:
        return "compiled code cannot be observed"
    if not context.reruns:
        return "the forward may run only once"
    heard = {layer: _RecordedCall() for layer in layers}
    try:
        loss = _listen(context, heard)
    except GradscopeError as error:
        return f"the forward raised when it was repeated: {error.what}"
    generator = torch.Generator().manual_seed(_SEED)
    with context.as_at_first(), torch.inference_mode(False), torch.enable_grad():
        for layer, call in heard.items():
            record = _record(context, layer, call, loss, generator)
            if record is not None:
                context.assembler.note(record)
    return None


def _listen(context: ProbeContext, heard: dict[nn.RNNBase, _RecordedCall]) -> Tensor:
    """Run the forward again, and store the arguments of the layers."""
    with ExitStack() as stack:
        for layer, call in heard.items():
            handle = layer.register_forward_hook(partial(_hear, call), with_kwargs=True)
            stack.callback(handle.remove)
        return context.forward().loss


def _hear(
    call: _RecordedCall, layer: nn.Module, args: Args, kwargs: dict[str, object], output: object
) -> None:
    call.calls += 1
    given = (*args, *(kwargs[name] for name in ("input", "hx") if name in kwargs))
    inputs = given[0] if given else None
    if call.calls > 1 or not isinstance(inputs, Tensor | PackedSequence):
        return
    call.inputs = inputs
    call.state = given[1] if len(given) > 1 else None
    if isinstance(output, tuple) and isinstance(output[0], Tensor):
        call.outputs = output[0]


def _record(
    context: ProbeContext,
    layer: nn.RNNBase,
    call: _RecordedCall,
    loss: Tensor,
    generator: torch.Generator,
) -> HorizonRecord | None:
    # A layer called one step at a time keeps its state outside.
    if call.inputs is None or call.calls != 1:
        return None
    inputs, state = _unpacked(layer, call.inputs, call.state)
    time = 1 if layer.batch_first and inputs.dim() == 3 else 0
    steps = inputs.shape[time]
    if steps < SHORTEST or not inputs.numel():
        return None
    weight = next(members.parameters(layer))
    # Under autocast, a layer may get another dtype than that of its weights.
    inputs = inputs.detach().to(weight.dtype, copy=True).requires_grad_()
    # On a GPU, the backward of cuDNN's kernels works only in train mode.
    with torch.backends.cudnn.flags(enabled=False), warnings.catch_warnings():
        # torch's warning about a slow kernel does not help users who only need gradients.
        warnings.simplefilter("ignore")
        # Without the layer's hooks, which are not meant for this run.
        last = layer.forward(inputs, state)[0].select(time, -1)
        # At that point, the backward half of a bidirectional layer has processed only one step.
        last = last[..., : layer.proj_size or layer.hidden_size]
        # Random weights, because the parts of a plain sum may cancel.
        weights = torch.randn(last.shape, generator=generator).to(last)
        (gradient,) = torch.autograd.grad((last * weights).sum(), inputs)
    return HorizonRecord(
        module=context.named.modules.index(layer),
        call_site=_call_site(context, layer),
        norms=_norms(gradient, time),
        read_from=_read_from(call, loss, time, steps),
    )


def _unpacked(
    layer: nn.RNNBase, inputs: Tensor | PackedSequence, state: object
) -> tuple[Tensor, Any]:
    """Return a layer's input and initial state as tensors without a graph."""
    if isinstance(inputs, PackedSequence):
        padded, lengths = pad_packed_sequence(inputs, batch_first=layer.batch_first)
        # The shorter sequences end in padding, which the layer never sees.
        longest = (lengths == lengths.max()).to(padded.device)
        return (padded[longest] if layer.batch_first else padded[:, longest]), None
    dtype = next(members.parameters(layer)).dtype
    if isinstance(state, tuple):
        return inputs, tuple(part.detach().to(dtype) for part in state)
    return inputs, state.detach().to(dtype) if isinstance(state, Tensor) else None


def _norms(gradient: Tensor, time: int) -> tuple[float, ...]:
    # In float64: the first steps of a long sequence may be below the range of float32 squares.
    by_step = gradient.detach().double().movedim(time, 0).flatten(1)
    return tuple(torch.linalg.vector_norm(by_step, dim=1).tolist())


def _read_from(call: _RecordedCall, loss: Tensor, time: int, steps: int) -> int:
    """Return the first time step whose output the loss uses.

    It is the last one for packed sequences and if only the final state is used, and the first one
    if it is unknown.
    """
    outputs = call.outputs
    if outputs is None or not outputs.requires_grad or loss.numel() != 1:
        return steps - 1
    try:
        (gradient,) = torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True)
    except RuntimeError:  # a reentrant checkpoint supports only a complete backward
        return 0
    if gradient is None:
        return steps - 1
    used = gradient.detach().movedim(time, 0).flatten(1).ne(0).any(dim=1)
    return int(used.int().argmax()) if bool(used.any()) else steps - 1


def _call_site(context: ProbeContext, layer: nn.Module) -> int | None:
    lines = [call.line for call in context.capture.modules.calls if call.module is layer]
    return context.assembler.site_of(lines[0]) if lines else None
