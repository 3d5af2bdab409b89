"""Checks whether the loss depends on numbers that a mask marks as padding."""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradscope.capture.observed_calls import Args
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.batches import PaddingRecord
from gradscope.target.structures import map_tensors, named_tensors

_MASKS = re.compile(r"^mask$|attention_mask|padding_mask|pad_mask|(^|_)lengths?$")
"""Parameters of a forward that tell it which positions are padding."""

_FEWEST = 3
"""Minimum number of positions whose equal data show that they are padding."""


class Padding(NamedTuple):
    """A tensor of the batch with padding, and what marks it."""

    mask: str
    data: Tensor
    changed: Tensor
    """The tensor with other numbers in the padding."""

    def replace(self, tensor: Tensor) -> Tensor:
        """Return the changed data in place of the data, and any other tensor as it is."""
        return self.changed if tensor is self.data else tensor


def probe_padding(context: ProbeContext, before: Tensor) -> None:
    """Record a mask that does not keep padding out of the loss.

    Args:
        context: What is probed.
        before: The loss, which is the same from run to run.
    """
    target = context.target
    for padding in paddings(list(named_tensors(target.batch, "batch"))):
        batch = map_tensors(target.batch, padding.replace)
        with _WithoutMask(context) as calls, context.as_at_first(), torch.enable_grad():
            loss = target.forward.at(batch, target.seed)().loss.detach()
        # Not bit for bit: a masked position takes part in sums whose rounding it changes.
        if torch.allclose(loss, before, rtol=1e-5, atol=1e-8):
            continue
        call, argument = calls.first()
        context.assembler.note(
            PaddingRecord(
                mask=padding.mask,
                argument=argument,
                site=None if call is None else context.assembler.site_of(call),
                change=float((loss - before).abs().max()),
            )
        )
        return


def paddings(tensors: list[tuple[str, Tensor]]) -> Iterator[Padding]:
    """Yield the data of a batch that has one value at all positions that a mask marks."""
    for name, mask in tensors:
        for _, data in tensors:
            for marked in _marked(mask, data):
                other = None if data is mask else _filled(data, marked)
                if other is not None:
                    yield Padding(name, data, other)


def _marked(mask: Tensor, data: Tensor) -> Iterator[Tensor]:
    """Yield what a mask, or lengths, may mark as padding: the start or the end of some rows."""
    if data.ndim < 2 or data.shape[0] != mask.shape[:1].numel() or data.shape[1] < 2:
        return
    if mask.ndim == 1 and mask.dtype in (torch.int32, torch.int64):
        # Class labels look like lengths, too, but rarely all lie in this range.
        if not bool(((mask >= 1) & (mask <= data.shape[1])).all()):
            return
        positions = torch.arange(data.shape[1], device=mask.device)
        yield positions[None] >= mask[:, None]
    elif mask.shape == data.shape[:2] and bool(((mask == 0) | (mask == 1)).all()):
        yield mask == 0
        # Libraries disagree: True marks padding in `key_padding_mask`, and tokens in
        # `attention_mask`.
        yield mask == 1


def _filled(data: Tensor, marked: Tensor) -> Tensor | None:
    """Return data with other numbers in its padding; None if what is marked is no padding."""
    order = marked.int().diff(dim=1)
    is_end, is_start = bool((order >= 0).all()), bool((order <= 0).all())
    is_part = bool(marked.any()) and not bool(marked.all(dim=1).any())
    if not is_part or not (is_end or is_start) or data.requires_grad:
        return None
    padding = data[marked]
    if len(padding) < _FEWEST:
        return None
    # Tokens of the same sequence are valid input, where invented ones may not be.
    kept = data[:, 0] if is_end else data[:, -1]
    is_constant = bool((padding == padding[0]).all())
    # Padding has one value; if the first token has it too, replacing it would change nothing.
    if not is_constant or bool((kept == padding[0]).all()):
        return None
    other = kept.unsqueeze(1).expand_as(data)
    mask = marked.reshape(*marked.shape, *[1] * (data.ndim - 2))
    return torch.where(mask, other, data)


class _WithoutMask:
    """Collects the calls of modules that are not given a mask which they could use."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._missing: list[tuple[nn.Module, str]] = []
        self._handles: list[Any] = []

    def __enter__(self) -> "_WithoutMask":
        self._handles = [
            module.register_forward_pre_hook(self._see, with_kwargs=True)
            for module in dict.fromkeys(self._context.named.modules)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _see(self, module: nn.Module, args: Args, kwargs: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(type(module).forward)
            given = signature.bind_partial(module, *args, **kwargs).arguments
        # Builtins have no signature, and a call that does not fit it is not of this forward.
        except (TypeError, ValueError):
            return
        missing = [
            name
            for name, parameter in signature.parameters.items()
            if _MASKS.search(name) and parameter.default is None and given.get(name) is None
        ]
        if missing:
            self._missing.append((module, max(missing, key=lambda name: "padding" in name)))

    def first(self) -> tuple[Any, str]:
        """Return the line of the first such call by another module, and the missing argument."""
        calls = self._context.capture.modules.calls
        for module, name in self._missing:
            for call in calls:
                if call.module is module and call.parent is not None and call.line is not None:
                    return call.line, name
        return None, ""
