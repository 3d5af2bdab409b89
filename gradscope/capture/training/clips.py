"""Records where a script clips gradients, the parameters of each clip, and its effect."""

import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from gradscope.capture.compiler import is_traced
from gradscope.capture.reading import is_plain_float
from gradscope.capture.training.event_log import known, number, unread
from gradscope.capture.training.gradient_state import EMPTY, SPENT, UNSPENT, Entry
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.locations import Location
from gradscope.capture.training.pacing.sentinels import is_broken
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.trainer_arguments import clips_itself, limit_argument
from gradscope.frozen import dataclass
from gradscope.recording.events import ClipEvent, ClipNormEvent, ClipValueEvent, named


def value_numbers(parameters: Sequence[Tensor], limit: float) -> dict[str, Any]:
    """Return the norm of all gradients before and after, and the cosine between the two.

    The results stay on the gradients' device. Empty if some gradient cannot be measured.
    """
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients or not all(map(is_plain_float, gradients)):
        return {}
    sums = [_sums(gradient.detach(), limit) for gradient in gradients]
    device = sums[0].device
    before, after, product = torch.stack([one.to(device) for one in sums]).sum(dim=0).unbind()
    return named(
        ClipValueEvent,
        norm=unread(before.sqrt()),
        norm_after=unread(after.sqrt()),
        cosine=unread(product / (before * after).sqrt()),
    )


def _sums(gradient: Tensor, limit: float) -> Tensor:
    """Return the sums of squares before and after, and of the products of both."""
    # Not every accelerator supports float64.
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


@dataclass(frozen=True, slots=True)
class _Clip:
    """A clip call before it runs."""

    kind: str
    function: str
    location: Location
    entries: list[Entry]
    parameters: int
    numbers: dict[str, Any]


Parameters = Tensor | Iterable[Tensor]
"""Argument of a clip function."""


class Clips:
    """Observes torch's functions that clip gradients.

    `clip_grad_norm_` itself is not wrapped, but the two functions that it calls. Its warnings then
    name the script's line, as without gradscope.
    """

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._norm_type = 2.0
        """Norm type of the total norm computed last."""

    def install(self, patches: Patches) -> None:
        """Start observing."""
        utils = torch.nn.utils
        patches.wrap(clip_grad, "_get_total_norm", self._wrap_norm)
        # `torch.nn.utils` imports these names: both must refer to the same replacement.
        patches.put(utils, "get_total_norm", clip_grad._get_total_norm)
        patches.wrap(clip_grad, "_clip_grads_with_norm_", self._wrap_clip_by_norm)
        patches.put(utils, "clip_grads_with_norm_", clip_grad._clip_grads_with_norm_)
        patches.wrap(clip_grad, "clip_grad_value_", self._wrap_clip_by_value)
        patches.put(utils, "clip_grad_value_", clip_grad.clip_grad_value_)

    def _wrap_norm(self, original: Function) -> Function:
        def get_total_norm(tensors: Any, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not is_traced():
                self._norm_type = norm_type
            return original(tensors, norm_type, *args, **kwargs)

        return get_total_norm

    def _wrap_clip_by_norm(self, original: Function) -> Function:
        guard = self._training.guard

        def clip_grads_with_norm_(
            parameters: Parameters,
            max_norm: float,
            total_norm: Tensor,
            *args: Any,  # noqa: ANN401
            **kwargs: Any,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            if is_traced() or not guard.active:
                return original(parameters, max_norm, total_norm, *args, **kwargs)
            # An iterator, such as `model.parameters()`, can be read only once.
            if not isinstance(parameters, Tensor):
                parameters = list(parameters)
            if self._repeats_clip("clip-norm", total_norm, sys._getframe(1)):
                return original(parameters, max_norm, total_norm, *args, **kwargs)
            clip = guard.run(self._before_norm, parameters, max_norm, total_norm, sys._getframe(1))
            result = original(parameters, max_norm, total_norm, *args, **kwargs)
            if clip is not None:
                guard.run(self._after, clip)
            return result

        return clip_grads_with_norm_

    def _wrap_clip_by_value(self, original: Function) -> Function:
        guard = self._training.guard

        def clip_grad_value_(
            parameters: Parameters,
            clip_value: float,
            *args: Any,  # noqa: ANN401
            **kwargs: Any,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            if is_traced() or not guard.active:
                return original(parameters, clip_value, *args, **kwargs)
            if not isinstance(parameters, Tensor):
                parameters = list(parameters)
            if self._training.repeats("clip-value", None, sys._getframe(1)):
                return original(parameters, clip_value, *args, **kwargs)
            # torch computes no norm here, and the elements beyond the limit are lost in the call.
            clip = guard.run(self._before_value, parameters, clip_value, sys._getframe(1))
            result = original(parameters, clip_value, *args, **kwargs)
            if clip is not None:
                guard.run(self._after, clip)
            return result

        return clip_grad_value_

    def _repeats_clip(self, kind: str, norm: Tensor, frame: FrameType) -> bool:
        """Return whether a clip by a finite norm is what the running step is expected to do."""
        training = self._training
        # A clip by a norm that is not finite breaks every gradient: this step is recorded in full.
        if training.pace.is_repeating() and is_broken(norm):
            training.pace.measures = True
            training.record_in_full()
        return training.repeats(kind, None, frame)

    def _before_norm(
        self,
        parameters: Parameters,
        max_norm: float,
        total_norm: Tensor,
        frame: FrameType,
    ) -> _Clip:
        numbers = named(
            ClipNormEvent,
            max_norm=max_norm,
            norm_type=self._norm_type,
            norm=unread(total_norm),
        )
        return self._clip("clip-norm", _name(frame), parameters, numbers, frame)

    def _before_value(self, parameters: Parameters, clip_value: float, frame: FrameType) -> _Clip:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        numbers = named(ClipValueEvent, clip_value=clip_value)
        numbers |= value_numbers(given, float(clip_value))
        return self._clip("clip-value", "clip_grad_value_", given, numbers, frame)

    def _clip(
        self,
        kind: str,
        function: str,
        parameters: Parameters,
        numbers: dict[str, Any],
        frame: FrameType,
    ) -> _Clip:
        training = self._training
        location = self._location(frame, numbers)
        training.sync(frame)  # changes that the script made itself are not the clip's effect
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        # A script may pass a shared parameter twice.
        found = map(training.gradient_state.add, dict.fromkeys(given))
        entries = [entry for entry in found if entry is not None]
        return _Clip(kind, function, location, entries, len(given), numbers)

    def _location(self, frame: FrameType, numbers: dict[str, Any]) -> Location:
        location = self._training.locations.of(frame)
        limit = number(numbers.get("max_norm", numbers.get("clip_value")))
        # A trainer clips because of an argument: that line is the one to change.
        if limit is None or not location.is_of_trainer or clips_itself(location.users_call()):
            return location
        users = self._training.locations.users(frame)
        return location._replace(argument=limit_argument(users, float(limit)))

    def _after(self, clip: _Clip) -> None:
        training = self._training
        # The clip itself wrote to the gradients: that is no new gradient.
        training.gradient_state.accept()
        states = [entry.state for entry in clip.entries]
        for entry in clip.entries:
            entry.clipped = entry.state == UNSPENT
        if training.by_hand is not None:
            training.by_hand.measure()
        numbers = known(
            ClipEvent,
            **clip.numbers,
            parameters=clip.parameters,
            fresh=states.count(UNSPENT),
            spent=states.count(SPENT),
            empty=states.count(EMPTY),
            scaled=float(any(entry.is_scaled for entry in clip.entries)),
            exhausted=float(not clip.parameters),
            scope=training.scopes.location(clip.entries),
        )
        training.event_log.note(clip.kind, clip.location, numbers, subject=clip.function)


def _name(frame: FrameType | None) -> str:
    """Return the function that the script called: this one, or `clip_grad_norm_` around it."""
    name = "clip_grads_with_norm_"
    while frame is not None and frame.f_code.co_filename == clip_grad.__file__:
        if frame.f_code.co_name == "clip_grad_norm_":
            name = "clip_grad_norm_"
        frame = frame.f_back
    return name
