"""Records what a rank holds: where parameters are placed, and numbers that ranks compare."""

from collections.abc import Collection, Iterator
from types import CodeType

from torch import Tensor, nn
from torch.optim import Optimizer

from gradscope.capture.ranks.observations import RankLog, Squares, squares_of
from gradscope.capture.ranks.placement import Placements, is_fsdp1, is_fsdp2, own_divisor
from gradscope.capture.ranks.reducers import Reducers
from gradscope.capture.source.lines import Line, is_users
from gradscope.capture.training.event_log import number
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.state import TrainingState
from gradscope.recording.evidence.ranks import Moment, RankNumbers, WrappedModel

_RATES = 256
"""Number of changes of the learning rate that are all recorded."""

_DUE_FIRST, _DUE_EVERY = 16, 64
"""Ranks compare numbers at this many first steps, at powers of two, and at every Nth step."""


def is_due(step: int) -> bool:
    """Return whether ranks measure a step: the same ones on all of them."""
    return step < _DUE_FIRST or step & (step - 1) == 0 or step % _DUE_EVERY == 0


def is_due_later(step: int) -> bool:
    """Return whether ranks measure a step after the first ones."""
    return step >= _DUE_FIRST and is_due(step)


class ComparedNumbers:
    """Measures the parameters that a rank holds, in the steps that all ranks measure.

    Args:
        training: State of the training.
        log: Receives the numbers and placements.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._rates: tuple[float | None, ...] = ()
        """Learning rates of the last step."""
        self._changes = 0
        """Number of times that they changed."""
        self._placed: set[int] = set()
        """Indices of parameters whose placement is recorded."""
        self._waiting: list[tuple[int, Moment, Squares]] = []
        self._after_backward: Squares = []
        self._wrapped: set[str] = set()

    def backward_ended(self) -> None:
        """Measure the gradients that a backward leaves."""
        if is_due(self._log.step):
            self._after_backward = self._gradients()

    def step_begins(self, held: Collection[int]) -> None:
        """Measure what an optimizer's step uses.

        Args:
            held: `id`s of the parameters of the optimizer. Other models, such as the opponent of a
                GAN, have gradients that this step does not use.
        """
        # Scripts register such hooks when they build the model.
        if self._log.step == 0:
            self._note_hooks()
        moments: tuple[tuple[Moment, Squares], ...] = (
            ("backward", self._after_backward),
            ("step", self._gradients()),
        )
        for moment, found in moments:
            self._hold(moment, [one for one in found if id(one[0].parameter()) in held])
        self._hold("weight", self._weights())

    def step_ended(self) -> None:
        """Forget the gradients of the last backward."""
        self._after_backward = []

    def note_rates(self, optimizer: Optimizer) -> None:
        """Record the learning rates of a step, where they are not those of the step before."""
        rates = tuple(
            rate if isinstance(rate := number(group.get("lr")), float) else None
            for group in optimizer.param_groups
        )
        if rates != self._rates and (self._changes < _RATES or is_due(self._log.step)):
            self._changes += 1
            self._log.add(RankNumbers(step=self._log.step, moment="rate", values=rates))
        self._rates = rates

    def settle(self) -> None:
        """Record what was measured; parameters have their indices by now."""
        waiting, self._waiting = self._waiting, []
        for step, moment, values in waiting:
            known = {e.index: value for e, value in values if e.index is not None}
            # Parameters get their indices when the first step is written.
            if len(known) < len(values) and not known:
                self._waiting.append((step, moment, values))
            elif known:
                size = max(known) + 1
                row = tuple(known.get(index) for index in range(size))
                self._log.add(RankNumbers(step=step, moment=moment, values=row))

    def record_placement(self, reducers: Reducers) -> None:
        """Record the placement of new parameters.

        Args:
            reducers: The models that DDP wraps.
        """
        new = [
            (entry.index, parameter)
            for entry, parameter in self._entries()
            if entry.index is not None and entry.index not in self._placed
        ]
        if not new:
            return
        wrapped = (model for one in reducers.known if (model := one.model()) is not None)
        modules = [*self._training.models.modules, *wrapped]
        self._note_wrapped(modules)
        placements = Placements(modules, reducers.reduced())
        for index, parameter in new:
            self._placed.add(index)
            self._log.add(placements.of(parameter, index))

    def _note_wrapped(self, modules: list[nn.Module]) -> None:
        for module in modules:
            kind = "FSDP1" if is_fsdp1(module) else "FSDP2" if is_fsdp2(module) else None
            if kind is not None and kind not in self._wrapped:
                self._wrapped.add(kind)
                self._log.add(
                    WrappedModel(
                        kind=kind,
                        name=type(getattr(module, "module", module)).__name__,
                        site=None,
                        step=self._log.step,
                        options=tuple(_options(kind, module)),
                    )
                )

    def _note_hooks(self) -> None:
        """Note that the script changes gradients in hooks, before they can be measured."""
        for _, parameter in self._entries():
            for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                hooks = getattr(parameter, kind, None) or {}
                for hook in list(hooks.values()):
                    code = getattr(hook, "__code__", None)
                    if isinstance(code, CodeType) and is_users(code):
                        line = Line(code, code.co_firstlineno)
                        self._log.note("gradient-hook", self._log.line(line))

    def _hold(self, moment: Moment, values: Squares) -> None:
        self._waiting.append((self._log.step, moment, values))

    def _entries(self) -> list[tuple[Entry, Tensor]]:
        entries = self._training.gradient_state.entries
        return [(entry, p) for entry in entries if (p := entry.parameter()) is not None]

    def _gradients(self) -> Squares:
        entries = self._entries()
        return squares_of([e for e, _ in entries], [p.grad for _, p in entries])

    def _weights(self) -> Squares:
        entries = self._entries()
        return squares_of([e for e, _ in entries], [p for _, p in entries])


def _options(kind: str, module: nn.Module) -> Iterator[tuple[str, float]]:
    if kind == "FSDP2":
        divisor = own_divisor(module)
        # Options are plain numbers, which have no None.
        yield "own_divisor", float(divisor is not None)
        yield "divisor", divisor or 0.0
