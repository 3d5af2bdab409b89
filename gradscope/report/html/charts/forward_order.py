"""The order of the forward as positions on an axis, and findings as flags over it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from textwrap import wrap

from gradscope.analysis.recording_index import created
from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.recording.finding import SEVERITIES, Finding
from gradscope.report.html.charts.axes import lettered
from gradscope.report.html.columns import Json, ModuleIndices
from gradscope.report.html.phrasing import module_of_finding

MOST_RUNS = 32
"""Maximum number of stretches of an axis: more could not be labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stretch of the forward inside of one module."""

    module: int | None
    """Module of the stretch; None for operations between modules, which belong to a module around
    them.
    """
    first: int
    last: int

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.last - self.first + 1


class ForwardOrder:
    """Positions from 0 on, in the order of the forward.

    A tensor has a position of its own, and a parameter that of the first tensor made with it.
    Parameters that the graph does not hold stand where their module does; where that has no tensor
    either, as behind a cut, it gets a position behind the parameter that was registered before it.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._modules = ModuleIndices(report)
        # A view of a parameter has the parameter's gradient.
        self.tensors = tuple(row for row in report.tensors if not row.is_parameter_view)
        keys = self._parameter_keys()
        every = {(position, 0) for position in range(len(self.tensors))} | set(keys)
        counted = {key: position for position, key in enumerate(sorted(every))}
        self.tensor_positions = tuple(counted[position, 0] for position in range(len(self.tensors)))
        self.parameter_positions = tuple(counted[key] for key in keys)
        self.length = len(counted)

    @cached_property
    def modules(self) -> tuple[int | None, ...]:
        """By position: the innermost module that runs there."""
        found: list[int | None] = [None] * self.length
        # A tensor belongs to the innermost module.
        for parameter, position in zip(
            self._report.parameters, self.parameter_positions, strict=True
        ):
            found[position] = self._modules.of(parameter.module)
        for tensor, position in zip(self.tensors, self.tensor_positions, strict=True):
            found[position] = self._modules.of(tensor.module)
        return tuple(found)

    def module_of(self, path: str | None) -> int | None:
        """Return the row of the module of a path."""
        return self._modules.of(path)

    def above(self, module: int | None) -> tuple[int, ...]:
        """Return a module and the modules around it."""
        return self._modules.above(module)

    def runs(self) -> tuple[Run, ...]:
        """Return the axis in stretches of modules: the widest are divided while there is room."""
        divided: frozenset[int] = frozenset()
        refused: set[int] = set()
        runs = self._stretches(divided)
        while (widest := _widest(runs, refused)) is not None:
            alike = self._alike(widest, runs)
            finer = self._stretches(divided | alike)
            labelled = sum(run.module is not None for run in finer)
            if labelled <= MOST_RUNS and self._is_mostly_parts(alike, runs, finer):
                divided, runs = divided | alike, finer
            else:
                refused |= alike
        return runs

    def _stretches(self, divided: frozenset[int]) -> tuple[Run, ...]:
        """Return the stretches of equal modules: at each position the outermost undivided one."""
        of_module = {
            module: next((at for at in self._modules.above(module) if at not in divided), None)
            for module in set(self.modules)
        }
        runs: list[Run] = []
        for position, inner in enumerate(self.modules):
            module = of_module[inner]
            if runs and runs[-1].module == module:
                runs[-1] = Run(module=module, first=runs[-1].first, last=position)
            else:
                runs.append(Run(module=module, first=position, last=position))
        return tuple(runs)

    def _alike(self, module: int, runs: Iterable[Run]) -> frozenset[int]:
        """Return the siblings of a module's class: blocks are divided together, or not at all."""
        rows = self._report.modules
        kind = (rows[module].parent, rows[module].class_name)
        return frozenset(
            run.module
            for run in runs
            if run.module is not None
            and (rows[run.module].parent, rows[run.module].class_name) == kind
        )

    def _is_mostly_parts(
        self, divided: frozenset[int], runs: Iterable[Run], finer: Iterable[Run]
    ) -> bool:
        """Return whether the content of some modules has at least half of their positions."""
        whole = sum(run.length for run in runs if run.module in divided)
        parts = (run for run in finer if divided.intersection(self._modules.above(run.module)))
        return 2 * sum(run.length for run in parts) >= whole

    def _parameter_keys(self) -> list[tuple[int, int]]:
        used, of_modules = self._first_uses(), self._first_of_modules()
        behind: dict[int, tuple[int, int]] = {}
        keys: list[tuple[int, int]] = []
        last = -1
        for parameter in self._report.parameters:
            module = self._modules.of(parameter.module)
            at = used.get(parameter.index)
            at = of_modules.get(module) if at is None and module is not None else at
            if at is not None:
                last = at
                keys.append((at, 0))
            else:
                where = -1 if module is None else module
                keys.append(behind.setdefault(where, (last, len(behind) + 1)))
        return keys

    def _first_uses(self) -> dict[int, int]:
        """Return, by parameter, the index in `tensors` of the first tensor made with it."""
        recording = self._report.recording
        made = [created(recording.nodes[row.node]) for row in self.tensors]
        if not made:
            return {}
        graph = recording.nodes[self.tensors[0].node].graph
        found: dict[int, int] = {}
        for edge in recording.edges:
            parameter, user = recording.nodes[edge.target].parameter, recording.nodes[edge.source]
            if parameter is not None and user.graph == graph:
                # The operation may have no row, as a view has none: the next tensor stands for it.
                at = min(bisect_left(made, created(user)), len(made) - 1)
                found[parameter] = min(at, found.get(parameter, at))
        return found

    def _first_of_modules(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for position, row in enumerate(self.tensors):
            module = self._modules.of(row.module)
            if module is not None:
                found.setdefault(module, position)
        return found


def _widest(runs: Iterable[Run], refused: Iterable[int]) -> int | None:
    """Return the module with most positions among those that may still be divided."""
    left_out = set(refused)
    lengths = Counter[int]()
    for run in runs:
        if run.module is not None and run.module not in left_out:
            lengths[run.module] += run.length
    widest, length = max(lengths.items(), key=lambda item: item[1], default=(None, 0))
    return widest if length > 1 else None


MOST_ROWS = 5
"""Maximum number of rows of flags."""

_WIDTH = 0.05
"""Width of a flag's letters, as a share of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A finding over the positions that it concerns."""

    finding: Finding
    first: int
    last: int
    row: int
    """Row of the flag, from 0: flags in one row do not overlap."""


def flags(report: Report, order: ForwardOrder) -> tuple[Flag, ...]:
    """Return a flag for each finding that concerns positions on the axis, the worst first."""
    room = order.length * _WIDTH
    taken: list[list[tuple[float, float]]] = []
    found = []
    for finding in report.findings:
        positions = sorted(_positions(finding, report, order))
        if not positions:
            continue
        middle = (positions[0] + positions[-1]) / 2
        start, end = min(positions[0], middle - room / 2), max(positions[-1], middle + room / 2)
        row = _free_row(taken, start, end)
        found.append(Flag(finding=finding, first=positions[0], last=positions[-1], row=row))
    return tuple(found)


def _free_row(taken: list[list[tuple[float, float]]], start: float, end: float) -> int:
    """Return the lowest row with room, or the highest there may be, and take the room."""
    free = (
        row
        for row, spans in enumerate(taken)
        if all(end < first or last < start for first, last in spans)
    )
    row = next(free, min(len(taken), MOST_ROWS - 1))
    if row == len(taken):
        taken.append([])
    taken[row].append((start, end))
    return row


def _positions(finding: Finding, report: Report, order: ForwardOrder) -> Iterator[int]:
    """Yield the positions of a finding: of its modules, otherwise its parameters or its line."""
    modules = _modules(finding, report)
    inside = [
        position
        for position, module in enumerate(order.modules)
        if modules.intersection(order.above(module))
    ]
    at_line = [
        position
        for row, position in zip(order.tensors, order.tensor_positions, strict=True)
        if finding.location is not None and row.site == finding.location
    ]
    both = sorted(set(inside).intersection(at_line))
    yield from both or inside or _of_parameters(finding, report, order) or at_line


def _modules(finding: Finding, report: Report) -> frozenset[int]:
    found = ModuleIndices(report).each(finding.modules)
    # The model itself has every position.
    return frozenset(at for at in found if at is not None and report.modules[at].path)


def _of_parameters(finding: Finding, report: Report, order: ForwardOrder) -> Sequence[int]:
    names = set(finding.parameters)
    return [
        position
        for row, position in zip(report.parameters, order.parameter_positions, strict=True)
        if names.intersection((row.name, *row.aliases))
    ]


_LINE_WIDTH = 76

_LONGEST = 400

_LAST = 0.8
"""Share of the axis after which texts are to the left of their marks."""

_UNDER = 0.4
"""Share of a row by which a line lies below its text."""


def flag_traces(
    raised: Sequence[Flag], report: Report, first_row: int, length: int
) -> Iterator[Mapping[str, Json]]:
    """Yield traces on axis `y3`, from a row on upwards; `length` is that of the axis below."""
    for severity in SEVERITIES:
        flags = [flag for flag in raised if flag.finding.severity == severity]
        if not flags:
            continue
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": [
                position for flag in flags for position in (flag.first - 0.5, flag.last + 0.5, None)
            ],
            "y": [row for flag in flags for row in (*[flag.row + first_row - _UNDER] * 2, None)],
            "yaxis": "y3",
            "line": {"color": f"@{severity}", "width": 3},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        yield {
            "type": "scatter",
            "mode": "markers+text",
            "x": [(flag.first + flag.last) / 2 for flag in flags],
            "y": [flag.row + first_row for flag in flags],
            "yaxis": "y3",
            "text": [flag.finding.rule for flag in flags],
            # At the end of the axis, a text to the right would be cut.
            "textposition": [
                f"middle {'left' if flag.first + flag.last > 2 * _LAST * length else 'right'}"
                for flag in flags
            ],
            "textfont": {"color": f"@{severity}"},
            "marker": {"symbol": "triangle-down", "size": 11, "color": f"@{severity}"},
            "hoverinfo": "text",
            "hovertext": [_text(flag) for flag in flags],
            "showlegend": False,
            "meta": {
                "links": {"module": [module_of_finding(flag.finding, report) for flag in flags]},
                "under": True,
            },
        }


def _text(flag: Flag) -> str:
    finding = flag.finding
    lines = wrap(printable(finding.message)[:_LONGEST], _LINE_WIDTH)
    return "<br>".join(
        [f"<b>{lettered(f'{finding.rule} {finding.name}')}</b>", *map(lettered, lines)]
    )
