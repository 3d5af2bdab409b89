"""The gradient norms of a model's layers in the last steps that were looked at."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradscope.analysis.assembly import parameter_rows
from gradscope.analysis.columns import Cells
from gradscope.analysis.folding import FoldedModule
from gradscope.analysis.layers import largest, outline
from gradscope.analysis.module_rows import module_rows, parameters_held
from gradscope.analysis.norms import total_norm
from gradscope.analysis.rows import ModuleRow
from gradscope.analysis.step_view import first_step
from gradscope.recording.growing import Growth
from gradscope.recording.meta import Header
from gradscope.recording.records import ModuleRecord, ParameterRecord, Recording

_KEPT = 128
"""Looks: no display is wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLayer:
    """A module, or several that repeat each other, and their gradient norms by look."""

    module: FoldedModule
    level: int
    cells: Cells
    """Of several modules the largest."""


class LayerNorms:
    """Looks at the last gradient of every parameter, now and then."""

    def __init__(self) -> None:
        self._modules: list[ModuleRecord] = []
        self._parameters: list[ParameterRecord] = []
        self._looks: deque[tuple[int, dict[int, float | None]]] = deque(maxlen=_KEPT)
        """By step: norms by parameter."""
        self._rows: tuple[ModuleRow, ...] = ()
        self._held: list[list[int]] = []
        self._outlines: dict[int, list[tuple[FoldedModule, int]]] = {}
        """By how many rows there may be."""
        self._cells: deque[dict[int, float | None]] = deque(maxlen=_KEPT)
        """By look: norms by module."""

    @property
    def steps(self) -> tuple[int, ...]:
        """At which steps it was looked."""
        return tuple(step for step, _ in self._looks)

    def add(self, step: int, growth: Growth) -> None:
        """Take a look, after a step."""
        if growth.modules or growth.parameters:
            self._modules += growth.modules
            self._parameters += growth.parameters
            self._structure(growth.header)
        if growth.norms:
            self._looks.append((step, growth.norms))
            self._cells.append(self._of_modules(growth.norms))

    def rows(self, most: int, width: int) -> list[LiveLayer]:
        """Return a row for each module with parameters, as deep as fits, and its last looks."""
        shown = list(self._cells)[-width:]
        found = self._outline(most + 1)
        if len(found) > most:
            found = self._outline(most)
        return [
            LiveLayer(
                module=module,
                level=level,
                cells=tuple(largest(look[row.index] for row in module.rows) for look in shown),
            )
            for module, level in found
        ]

    def _outline(self, most: int) -> list[tuple[FoldedModule, int]]:
        found = self._outlines.get(most)
        if found is None:
            found = outline(self._rows, lambda row: (row.own_numel, row.trainable_parameters), most)
            if len(found) > 1 and all(level for _, level in found[1:]):
                # The norm of a whole that is the only one is the global one.
                found = [(module, level - 1) for module, level in found[1:]]
            self._outlines[most] = found
        return found

    def _structure(self, header: Header) -> None:
        alone = _structure_alone(header, self._modules, self._parameters)
        self._rows = module_rows(first_step(alone), parameter_rows(first_step(alone)))
        self._held = parameters_held(alone)
        # What a row is made of may be another now.
        self._outlines.clear()
        self._cells = deque((self._of_modules(norms) for _, norms in self._looks), _KEPT)

    def _of_modules(self, norms: dict[int, float | None]) -> dict[int, float | None]:
        return {
            row.index: total_norm(
                norm for place in self._held[row.index] if (norm := norms.get(place)) is not None
            )
            for row in self._rows
        }


def _structure_alone(
    header: Header, modules: Iterable[ModuleRecord], parameters: Iterable[ParameterRecord]
) -> Recording:
    """Return a recording of modules and parameters, and nothing that happened."""
    return Recording(
        version=header.version,
        command=header.command,
        environment=header.environment,
        target=header.target,
        parameters=tuple(parameters),
        modules=tuple(replace(module, site=None) for module in modules),
        calls=(),
        sites=(),
        nodes=(),
        edges=(),
        steps=(),
        events=(),
        parameter_stats=(),
        tensor_stats=(),
        skipped=(),
    )
