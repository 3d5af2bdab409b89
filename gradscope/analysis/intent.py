"""The user's intent: evidence that parameters should learn, or should stay fixed."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.phrasing import literal
from gradscope.recording.evidence.parameters import LoadedRecord
from gradscope.recording.evidence.training import GroupRecord, OptimizerRecord
from gradscope.recording.records import ModuleRecord, ParameterRecord

# Short words count only as whole parts of a name: `schema` contains `ema`, `preference` contains
# `ref`. The fixed point of a solver is no frozen weight.
_FIXED = re.compile(
    r"no_?grad|frozen|freeze|fixed(?!_?point)|teacher|target"
    r"|(^|[._])(ema|ref|reference|victim)([._#]|$)|momentum|shadow|averag|perceptual|lpips|vgg|pretrained|guide|oracle|detach|stop_?grad",
    re.IGNORECASE,
)
"""Names that authors give to parameters which gradients should not train."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An optimizer's group that holds parameters."""

    optimizer: OptimizerRecord
    group: GroupRecord
    number: int
    """Index of the group in its optimizer."""
    is_own: bool
    """Whether the group, or the whole optimizer, holds no other parameter of the model: the author
    then chose a learning rate for just these parameters.
    """

    def text(self, parameters: int, *, several: bool) -> str:
        """Return the evidence for a message.

        Args:
            parameters: Number of the parameters that it is about.
            several: Whether they belong to several modules.
        """
        rate = self.group.learning_rate
        lr = "" if rate is None else f"(lr={literal(rate)})"
        its = "their" if several else "its"
        its = f"{its} parameter is" if parameters == 1 else f"{its} {parameters} parameters are"
        name = self.optimizer.class_name
        if len(self.optimizer.groups) == 1:
            return f"{its} in {name}{lr}"
        number = (
            f"{_ORDINALS[self.number]} group"
            if self.number < len(_ORDINALS)
            else f"group {self.number}"
        )
        return f"{its} in {name}'s {number} {lr}".rstrip()


def is_named_fixed(names: Iterable[str | None]) -> bool:
    """Return whether a name, of a module or a function, says that something is not to learn."""
    return any(name is not None and _FIXED.search(name) for name in names)


@dataclass(frozen=True)
class Intent:
    """The evidence of a recording."""

    indexed: RecordingIndex

    @cached_property
    def _records(self) -> tuple[OptimizerRecord, ...]:
        return self.indexed.recording.evidence_of(OptimizerRecord)

    def holding(self, parameters: Iterable[int]) -> Holding | None:
        """Return the group that holds all of some parameters, None if no group does.

        Of several, it is one that holds nothing else.
        """
        wanted = frozenset(parameters)
        found = sorted(self._holdings(wanted), key=lambda one: not one.is_own)
        return found[0] if wanted and found else None

    def _holdings(self, wanted: frozenset[int]) -> Iterator[Holding]:
        for record in self._records:
            # An optimizer, or a group, of all parameters is the usual one, and says nothing on
            # these.
            is_only = len(self._records) > 1 and record.parameters == wanted
            for number, group in enumerate(record.groups):
                held = frozenset(group.parameters)
                if wanted <= held:
                    is_own = held == wanted and len(record.groups) > 1
                    yield Holding(
                        optimizer=record, group=group, number=number, is_own=is_own or is_only
                    )

    def is_given_a_rate(self, parameters: Iterable[int]) -> bool:
        """Return whether a group of their own, with a learning rate, holds some parameters."""
        holding = self.holding(parameters)
        # A rate of zero is a way to freeze parameters.
        return holding is not None and holding.is_own and holding.group.learning_rate != 0

    def is_followed(self, parameters: Iterable[int]) -> bool:
        """Return whether the script itself moves parameters that never get a gradient.

        So it does to a running mean, or to a copy that is set to the original now and then.
        """
        run = self.indexed.run
        return run is not None and not run.followed.isdisjoint(parameters)

    def was_unfrozen(self, parameters: Iterable[int]) -> bool:
        """Return whether parameters required no grad earlier in the run."""
        run = self.indexed.run
        return run is not None and run.unfrozen.issuperset(parameters)

    def is_never_cleared(self, parameters: Iterable[int]) -> bool:
        """Return whether gradients of that many parameters add up over the whole run."""
        run = self.indexed.run
        count = len(frozenset(parameters))
        return run is not None and run.uncleared >= count > 0

    def frozen_beside(self, parameters: Iterable[int]) -> ModuleRecord | None:
        """Return the largest module that is frozen by `requires_grad`, None if there is none.

        Whoever freezes one network so means others, which require grad, to learn. A single frozen
        layer is too little: libraries freeze tables of positions.
        """
        own = frozenset(parameters)
        below: dict[int, list[ParameterRecord]] = {}
        for parameter in self.indexed.recording.parameters:
            position: int | None = parameter.module
            while position is not None:
                below.setdefault(position, []).append(parameter)
                position = self.indexed.recording.modules[position].parent
        frozen = {
            module: sum(p.numel for p in records)
            for module, records in below.items()
            if not any(p.requires_grad or p.index in own for p in records)
            and sum(len(p.shape.dims) > 1 for p in records) > 1
        }
        # A module that holds only another has its size: the outer one has the smaller index.
        largest = max(frozen, key=lambda module: (frozen[module], -module), default=None)
        return None if largest is None else self.indexed.recording.modules[largest]

    def stays(self, parameters: Iterable[int]) -> bool:
        """Return whether parameters stay unchanged over several steps, so no forward moves them."""
        wanted = frozenset(parameters)
        norms: dict[int, set[float | None]] = {}
        for stat in self.indexed.recording.parameter_stats:
            if stat.parameter in wanted:
                norms.setdefault(stat.parameter, set()).add(stat.weight_norm)
        steps = {stat.step for stat in self.indexed.recording.parameter_stats}
        known = all(len(found) == 1 and None not in found for found in norms.values())
        return len(steps) > 1 and bool(norms) and known

    def is_loaded(self, module: int) -> bool:
        """Return whether a module, or one around it, loaded its weights."""
        position: int | None = module
        while position is not None:
            if position in self._loaded:
                return True
            position = self.indexed.recording.modules[position].parent
        return False

    @cached_property
    def _loaded(self) -> frozenset[int]:
        records = self.indexed.recording.evidence_of(LoadedRecord)
        return frozenset(record.module for record in records)
