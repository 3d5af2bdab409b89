"""Norms of a run's parameters by step: a million rows, stored in columns."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Self, get_args, overload

from gradscope.frozen import dataclass
from gradscope.recording.records import GradientStat, ParameterStat, Reach, Recording

REACHES: tuple[Reach, ...] = get_args(Reach)
NO_GRADIENT = "it had no gradient"
"""Why a run's parameter has no gradient: nothing else is known."""
CODES: Mapping[Reach, int] = {reach: code for code, reach in enumerate(REACHES)}
"""By reach: its index."""
NOT_MEASURED = -1.0
"""Stands for a norm that was not measured: none is negative."""
_NOT_MEASURED_CELL = array("d", [NOT_MEASURED]).tobytes()


def are_unmeasured(norms: Sequence[float]) -> bool:
    """Return whether none of these norms was measured: by their bytes, far faster than by each."""
    return _cells(norms) == _NOT_MEASURED_CELL * len(norms)


def measured_in(norms: Sequence[float]) -> Sequence[float]:
    """Return the norms that were measured: mostly all of them, which their bytes tell."""
    if _NOT_MEASURED_CELL not in _cells(norms):
        return norms
    return [norm for norm in norms if norm != NOT_MEASURED]


def _cells(norms: Sequence[float]) -> bytes:
    return (norms if isinstance(norms, array) else array("d", norms)).tobytes()


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class NormTable(Sequence[ParameterStat]):
    """Statistics of a run's parameters. Records are made on access.

    A row is one parameter in one step; steps ascend. In the columns, norms that were not measured
    are `NOT_MEASURED`.
    """

    steps: Sequence[int]
    parameters: Sequence[int]
    reaches: bytes
    """Indices in `REACHES`."""
    gradients: Sequence[float]
    """Norms as the optimizer saw them; not measured without a gradient."""
    weights: Sequence[float]
    """Norms at their last measurement."""
    updates: Sequence[float]
    numels: Mapping[int, int]
    """By parameter: number of its elements."""
    _sets: dict[bytes, frozenset[int]] = field(default_factory=dict, init=False, compare=False)
    """By measured parameters, as bytes: their set. Nearly all steps measure the same ones."""

    @classmethod
    def of_rows(
        cls,
        rows: Iterable[Sequence[tuple[int, int, Reach, float, float, float]]],
        numels: Mapping[int, int],
    ) -> Self:
        """Return the table of batches of rows.

        Args:
            rows: Step, parameter, reach, and the norms of gradient, weight and update.
            numels: By parameter: number of its elements.
        """
        # Arrays take 8 bytes an entry; a list of floats takes four times as much.
        steps, parameters, reaches = array("q"), array("q"), bytearray()
        gradients, weights, updates = array("d"), array("d"), array("d")
        for batch in rows:
            of_step, of_parameter, reach, *norms = zip(*batch, strict=True)
            steps.extend(of_step)
            parameters.extend(of_parameter)
            reaches.extend(map(CODES.__getitem__, reach))
            for column, values in zip((gradients, weights, updates), norms, strict=True):
                # Cells may hold `NaN` as a text.
                column.extend(map(float, values))
        return cls(
            steps=steps,
            parameters=parameters,
            reaches=bytes(reaches),
            gradients=gradients,
            weights=weights,
            updates=updates,
            numels=numels,
        )

    def rows_of(self, step: int) -> range:
        """Return the rows of a step."""
        return range(bisect_left(self.steps, step), bisect_right(self.steps, step))

    def distinct_steps(self) -> Iterator[int]:
        """Yield the steps that have rows."""
        row = 0
        while row < len(self.steps):
            yield self.steps[row]
            row = bisect_right(self.steps, self.steps[row], row)

    def blocks(self) -> Iterator[tuple[Sequence[int], range]]:
        """Yield the rows of consecutive steps that measure the same parameters, and these.

        Of a block with n parameters, every n-th row belongs to the same one.
        """
        start = at = 0
        measured: Sequence[int] = ()
        while at < len(self):
            end = bisect_right(self.steps, self.steps[at], at)
            own = self.parameters[at:end]
            # Arrays are compared in C: nearly all of a run's steps are equal here.
            if own != measured:
                if at > start:
                    yield measured, range(start, at)
                start, measured = at, own
            at = end
        if at > start:
            yield measured, range(start, at)

    def with_gradient(self, step: int) -> frozenset[int]:
        """Return the parameters with a gradient in a step."""
        rows = self.rows_of(step)
        parameters = self.parameters[rows.start : rows.stop]
        norms = self.gradients[rows.start : rows.stop]
        if len(measured_in(norms)) == len(norms):  # nearly always
            # Bytes, because arrays cannot be keys.
            key = array("q", parameters).tobytes()
            if key not in self._sets:
                self._sets[key] = frozenset(parameters)
            return self._sets[key]
        known = zip(parameters, norms, strict=True)
        return frozenset(parameter for parameter, norm in known if norm != NOT_MEASURED)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.steps)

    @overload
    def __getitem__(self, position: int) -> ParameterStat: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[ParameterStat, ...]: ...
    def __getitem__(self, position: int | slice) -> ParameterStat | tuple[ParameterStat, ...]:
        """Return the record of a row, or those of a slice."""
        rows = range(len(self))[position]
        return self._record(rows) if isinstance(rows, int) else tuple(map(self._record, rows))

    def __iter__(self) -> Iterator[ParameterStat]:
        """Iterate over the records."""
        return map(self._record, range(len(self)))

    def _record(self, row: int) -> ParameterStat:
        parameter, norm = self.parameters[row], self.gradients[row]
        weight, update = self.weights[row], self.updates[row]
        return ParameterStat(
            step=self.steps[row],
            parameter=parameter,
            reach=REACHES[self.reaches[row]],
            gradient=(None if norm < 0 else GradientStat(numel=self.numels[parameter], norm=norm)),
            reason=NO_GRADIENT if norm < 0 else None,
            weight_norm=None if weight < 0 else weight,
            update_norm=None if update < 0 else update,
        )


def norms_of(recording: Recording) -> NormTable:
    """Return the norms measured of parameters, in columns."""
    stats = recording.parameter_stats
    if isinstance(stats, NormTable):
        return stats
    rows = [
        (
            stat.step,
            stat.parameter,
            stat.reach,
            NOT_MEASURED if stat.gradient is None else stat.gradient.norm,
            NOT_MEASURED if stat.weight_norm is None else stat.weight_norm,
            NOT_MEASURED if stat.update_norm is None else stat.update_norm,
        )
        for stat in sorted(stats, key=lambda stat: stat.step)
    ]
    numels = {record.index: record.numel for record in recording.parameters}
    return NormTable.of_rows([rows] if rows else [], numels)
