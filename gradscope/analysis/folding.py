"""Folds the module tree: siblings that repeat each other become one row."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from gradscope.analysis.rows import ModuleCallRow, ModuleRow
from gradscope.frozen import dataclass

LONGEST_PATTERN = 4
"""Maximum length of a repeated pattern of siblings: Linear and ReLU in turn are a pattern of two.
"""

NOTABLE_GAIN = 10.0
"""Minimum change of the norm by a module without parameters that gets a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The range of some numbers."""

    low: float
    """Lowest value; NaN if all are."""
    high: float
    """Highest value; NaN if one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedModule:
    """Modules of equal structure, shown as one."""

    name: str
    """Path below the parent; `h.[0-11]` for twelve blocks."""
    copies: int
    """Number of siblings that the module represents; its parent may represent several too."""
    rows: tuple[ModuleRow, ...]
    """All modules that it represents, in order."""
    children: tuple["FoldedModule", ...]

    @property
    def grad_norm(self) -> Span | None:
        """Range of the gradient norms over each module's parameters."""
        return span(row.grad_norm for row in self.rows)

    @property
    def output_grad_norm(self) -> Span | None:
        """Range of the gradient norms at the outputs of all calls."""
        return span(call.output_grad_norm for call in self.calls())

    @property
    def gain(self) -> Span | None:
        """Range of the backward gains of all calls."""
        return span(call.gain for call in self.calls())

    def calls(self) -> Iterator[ModuleCallRow]:
        """Yield the calls of all its modules."""
        return (call for row in self.rows for call in row.calls)

    def size(self) -> int:
        """Return the number of rows with everything below."""
        return 1 + sum(child.size() for child in self.children)


def span(values: Iterable[float | None]) -> Span | None:
    """Return the range of the numbers; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    numbers = [value for value in known if not math.isnan(value)]
    if not numbers:
        return Span(low=math.nan, high=math.nan)
    high = max(numbers) if len(numbers) == len(known) else math.nan
    return Span(low=min(numbers), high=high)


def fold_modules(
    rows: Sequence[ModuleRow], mark: Callable[[ModuleRow], Hashable]
) -> tuple[FoldedModule, ...]:
    """Return the trees of modules, repeated siblings folded.

    Siblings fold when their names are integers in sequence and they and all below them agree in
    class, name and mark.

    Args:
        rows: Modules; one whose parent is not among them is a root. Siblings stay in this order.
        mark: What modules have to agree in besides, as whether they got a gradient.
    """
    return _Folder(rows, mark).fold()


def gradient_state(row: ModuleRow) -> Hashable:
    """Return what keeps a module from folding with its like: another size, fate or use."""
    norm = row.grad_norm
    state = "none" if norm is None else "zero" if norm == 0.0 else math.isfinite(norm)
    return (state, bool(row.trainable_parameters), row.own_numel, bool(row.calls))


class _Folder:
    """Folds one tree."""

    def __init__(self, rows: Sequence[ModuleRow], mark: Callable[[ModuleRow], Hashable]) -> None:
        self._mark = mark
        present = {row.index for row in rows}
        self._children: dict[int | None, list[ModuleRow]] = {}
        for row in rows:
            parent = row.parent if row.parent in present else None
            self._children.setdefault(parent, []).append(row)
        self._kinds: dict[Hashable, int] = {}
        self._kind_of: dict[int, int] = {}

    def fold(self) -> tuple[FoldedModule, ...]:
        """Return the folded roots; roots never fold with each other."""
        return tuple(self._folded(row.path, 1, (row,)) for row in self._children.get(None, []))

    def _folded(self, name: str, copies: int, rows: tuple[ModuleRow, ...]) -> FoldedModule:
        below = zip(*(self._children.get(row.index, []) for row in rows), strict=True)
        return FoldedModule(
            name=name, copies=copies, rows=rows, children=tuple(self._siblings(list(below)))
        )

    def _siblings(self, columns: list[tuple[ModuleRow, ...]]) -> Iterator[FoldedModule]:
        """Yield the siblings; a column holds the same child of each of the parents."""
        position = 0
        while position < len(columns):
            length, repeats = self._pattern(columns, position)
            for start in range(position, position + length):
                run = [columns[start + length * turn] for turn in range(repeats)]
                names = [last_name(column[0]) for column in run]
                rows = tuple(row for column in run for row in column)
                yield self._folded(_joined(names), repeats, rows)
            position += length * repeats

    def _pattern(self, columns: list[tuple[ModuleRow, ...]], position: int) -> tuple[int, int]:
        """Return length and repetitions of the pattern that covers most siblings from here on."""
        best = (1, 1)
        for length in range(1, LONGEST_PATTERN + 1):
            repeats = self._repeats(columns, position, length)
            # Two turns of a longer pattern may be chance.
            if repeats >= (2 if length == 1 else 3) and length * repeats > best[0] * best[1]:
                best = (length, repeats)
        return best

    def _repeats(self, columns: list[tuple[ModuleRow, ...]], position: int, length: int) -> int:
        first = last_name(columns[position][0])
        # `isdigit` accepts superscripts too, which `int` rejects.
        if not first.isdecimal():
            return 1
        end = position
        while end < len(columns) and self._continues(columns, position, end, length):
            end += 1
        return (end - position) // length

    def _continues(
        self, columns: list[tuple[ModuleRow, ...]], position: int, end: int, length: int
    ) -> bool:
        number = int(last_name(columns[position][0])) + end - position
        # As text, because `int` reads `007` as well, which is another name than `7`.
        if last_name(columns[end][0]) != str(number):
            return False
        return end - position < length or self._alike(columns[end - length], columns[end])

    def _alike(self, one: tuple[ModuleRow, ...], other: tuple[ModuleRow, ...]) -> bool:
        return self._kind(one[0]) == self._kind(other[0])

    def _kind(self, row: ModuleRow) -> int:
        """Return a number that modules share when they and all below them are alike."""
        known = self._kind_of.get(row.index)
        if known is None:
            below = tuple(
                (last_name(child), self._kind(child)) for child in self._children.get(row.index, [])
            )
            # Numbers instead of trees: comparing nested keys would walk all below a module at every
            # level.
            key = (row.class_name, self._mark(row), below)
            known = self._kinds.setdefault(key, len(self._kinds))
            self._kind_of[row.index] = known
        return known


def last_name(row: ModuleRow) -> str:
    """Return the last part of a module's path."""
    return row.path.rpartition(".")[2]


def _joined(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    first, second, last = names[0], names[1], names[-1]
    if int(second) == int(first) + 1:
        return f"[{first}-{last}]"
    return f"[{first},{second}..{last}]"


def without_plain(tree: FoldedModule) -> FoldedModule | None:
    """Return the tree without modules that hold no parameters and change no gradient much."""
    kept = tuple(child for below in tree.children if (child := without_plain(below)) is not None)
    if not kept and not _has_news(tree):
        return None
    return replace(tree, children=kept)


def _has_news(tree: FoldedModule) -> bool:
    if any(row.parameters for row in tree.rows):
        return True
    gain = tree.gain
    # A NaN is in no range.
    return gain is not None and not (1 / NOTABLE_GAIN < gain.low <= gain.high < NOTABLE_GAIN)


def cut_below(tree: FoldedModule, depth: int) -> FoldedModule:
    """Return the tree down to modules that lie in `depth` modules of the model."""
    if not tree.children or tree.children[0].rows[0].depth > depth:
        return replace(tree, children=())
    return replace(tree, children=tuple(cut_below(child, depth) for child in tree.children))


def fitting_depth(trees: Sequence[FoldedModule], rows: int) -> int:
    """Return the greatest depth at which the trees have at most this many rows."""
    depth = min((tree.rows[0].depth for tree in trees), default=0)
    deepest = max((_deepest(tree) for tree in trees), default=depth)
    while depth < deepest and _size_at(trees, depth + 1) <= rows:
        depth += 1
    return depth


def _deepest(tree: FoldedModule) -> int:
    return max([tree.rows[0].depth, *(_deepest(child) for child in tree.children)])


def _size_at(trees: Sequence[FoldedModule], depth: int) -> int:
    return sum(merge_containers(cut_below(tree, depth)).size() for tree in trees)


def merge_containers(tree: FoldedModule) -> FoldedModule:
    """Return the tree with each container of a single child in that child's row: `h.[0-11]`.

    A container is a module that was not called and has no parameters of its own. One that is an
    only child and whose children were cut away tells no more than its parent, and goes too.
    """
    children = tuple(merge_containers(child) for child in tree.children)
    if len(children) == 1 and not children[0].children and _is_container(children[0]):
        return replace(tree, children=())
    if len(children) != 1 or not _is_container(tree):
        return replace(tree, children=children)
    only = children[0]
    # A data-parallel wrapper has the path of the model that it holds.
    is_wrapper = only.rows[0].path == tree.rows[0].path
    name = tree.name if is_wrapper else f"{tree.name}.{only.name}"
    return replace(only, name=name, copies=tree.copies * only.copies)


def _is_container(tree: FoldedModule) -> bool:
    return bool(tree.name) and all(
        row.parameters and not row.calls and not row.own_parameters for row in tree.rows
    )


def joined_paths(paths: Sequence[str]) -> str:
    """Return paths that differ in numbers alone as one: `h.[2,5-7].mlp`."""
    columns = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(_joined_names(names) for names in columns)


def _joined_names(names: tuple[str, ...]) -> str:
    if len(set(names)) == 1:
        return names[0]
    return f"[{joined_numbers({int(name) for name in names})}]"


def joined_numbers(numbers: Iterable[int]) -> str:
    """Return `2-3,10`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
