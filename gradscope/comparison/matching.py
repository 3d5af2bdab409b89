"""Matches the parameters of two models, though the names around them may differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from gradscope.frozen import dataclass
from gradscope.recording.records import ParameterRecord

WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of names that torch.compile, data parallelism, FSDP and checkpointing add."""

_Key = tuple[str, tuple[int, ...]]
"""Name and shape of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Parameters that have the same names but for their beginning, or for wrappers in them."""

    before: str
    """Part of the base's names that differs, with its dot; may be empty."""
    after: str
    """Corresponding part in the other model."""
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The parameters that two models share."""

    pairs: tuple[tuple[int, int], ...]
    """Indices in the base and in the other model, in the base's order."""
    renamings: tuple[Renaming, ...]


def match_parameters(base: Sequence[ParameterRecord], other: Sequence[ParameterRecord]) -> Matching:
    """Match the parameters of two models by their names.

    Names are equal if one of those that the tensor has is, or if they differ in wrappers alone.
    What is left is matched where another beginning of the names makes all else equal, shapes too,
    and where only the numbers of layers are others, as after one was put between them. Last come
    equal names of different shapes.
    """
    search = _Search(base, other)
    search.match_names()
    search.match_unwrapped()
    search.match_below_prefixes()
    search.match_roots()
    search.match_renumbered()
    search.match_reshaped()
    return Matching(pairs=tuple(sorted(search.pairs)), renamings=tuple(search.renamings))


class _Search:
    """One search; each way of matching considers the names that the earlier ways have left."""

    def __init__(self, base: Sequence[ParameterRecord], other: Sequence[ParameterRecord]) -> None:
        self._base, self._other = base, other
        # Dicts serve as sets that keep the order of the model.
        self._base_left = dict.fromkeys(range(len(base)))
        self._other_left = dict.fromkeys(range(len(other)))
        self.pairs: list[tuple[int, int]] = []
        self.renamings: list[Renaming] = []

    def _take(self, base: int, other: int) -> None:
        self.pairs.append((base, other))
        del self._base_left[base]
        del self._other_left[other]

    def match_names(self) -> None:
        """Match equal names, then other names of the same tensors."""
        firsts = {self._other[position].name: position for position in self._other_left}
        for position in tuple(self._base_left):
            found = firsts.get(self._base[position].name)
            if found is not None and self._is_alike(position, found):
                self._take(position, found)
        names = {
            name: position
            for position in self._other_left
            for name in (self._other[position].name, *self._other[position].aliases)
        }
        for position in tuple(self._base_left):
            record = self._base[position]
            known = (names.get(name) for name in (record.name, *record.aliases))
            found = next((one for one in known if one in self._other_left), None)
            if found is not None and self._is_alike(position, found):
                self._take(position, found)

    def match_unwrapped(self) -> None:
        """Match names that differ only in wrappers, and are unique without them."""
        base = _unique(
            {position: unwrapped(self._base[position].name) for position in self._base_left}
        )
        other = _unique(
            {position: unwrapped(self._other[position].name) for position in self._other_left}
        )
        common = [
            (position, other[name])
            for name, position in base.items()
            if name in other and self._is_alike(position, other[name])
        ]
        for pair in common:
            self._take(*pair)
        if common:
            self._tell_wrappers(common)

    def _tell_wrappers(self, pairs: Sequence[tuple[int, int]]) -> None:
        seen = Counter(
            (_wrappers(self._base[base].name), _wrappers(self._other[other].name))
            for base, other in pairs
        )
        for (before, after), count in seen.items():
            self.renamings.append(Renaming(before=before, after=after, parameters=count))

    def match_below_prefixes(self) -> None:
        """Match all that is below two modules that most parameters left are in.

        Where no name has been equal so far, half of them being equal is enough.
        """
        base, other = self._left_base(), self._left_other()
        best: tuple[int, int, str, str, dict[int, int]] | None = None
        for before in _prefixes([key[0] for key in base.values()]):
            for after in _prefixes([key[0] for key in other.values()]):
                found = self._equal_below(base, other, before, after)
                # Prefer many matches, then short prefixes.
                rank = (len(found), -len(before) - len(after))
                if found and (best is None or rank > best[:2]):
                    best = (*rank, before, after, found)
        if best is not None and self._is_telling(best[4]):
            self._take_renamed(best[2], best[3], best[4])

    def _equal_below(
        self, base: dict[int, _Key], other: dict[int, _Key], before: str, after: str
    ) -> dict[int, int]:
        """Return the equal names below two modules; nothing if too many differ."""
        ours, theirs = _below(base, before), _below(other, after)
        found = {position: theirs[key] for key, position in ours.items() if key in theirs}
        is_whole = len(found) == len(ours) == len(theirs)
        is_most = not self.pairs and 2 * len(found) >= max(len(ours), len(theirs))
        return found if is_whole or is_most else {}

    def match_roots(self) -> None:
        """Match names below their first part, if only one of the other side fits."""
        base, other = _by_root(self._left_base()), _by_root(self._left_other())
        fits = [
            (before, after)
            for before, ours in base.items()
            for after, theirs in other.items()
            if ours.keys() == theirs.keys()
        ]
        of_base = Counter(before for before, _ in fits)
        of_other = Counter(after for _, after in fits)
        for before, after in fits:
            if of_base[before] == of_other[after] == 1:
                theirs = other[after]
                found = {position: theirs[key] for key, position in base[before].items()}
                if self._is_telling(found):
                    self._take_renamed(before, after, found)

    def match_renumbered(self) -> None:
        """Match modules of equal parameters whose names differ in numbers alone, in their order."""
        base = _modules(self._base, self._base_left)
        other = _modules(self._other, self._other_left)
        ours, theirs = (list(one.items()) for one in (base, other))
        blocks = SequenceMatcher(
            # By default, difflib ignores what is frequent in 200 elements or more: equal layers
            # are.
            a=[_without_numbers(*module) for module in base],
            b=[_without_numbers(*module) for module in other],
            autojunk=False,
        ).get_matching_blocks()
        for start, begin, length in blocks:
            for turn in range(length):
                (before, _), positions = ours[start + turn]
                (after, _), found = theirs[begin + turn]
                if before != after:
                    pairs = dict(zip(positions, found, strict=True))
                    self._take_renamed(f"{before}.", f"{after}.", pairs)

    def match_reshaped(self) -> None:
        """Match equal names, whatever the shapes are."""
        names = {unwrapped(self._other[position].name): position for position in self._other_left}
        for position in tuple(self._base_left):
            found = names.get(unwrapped(self._base[position].name))
            if found is not None and found in self._other_left:
                self._take(position, found)

    def _is_alike(self, base: int, other: int) -> bool:
        return self._base[base].shape.dims == self._other[other].shape.dims

    def _is_telling(self, found: dict[int, int]) -> bool:
        """Return whether enough is equal to exclude chance: more than a lone parameter."""
        return len(found) > 1 or not self.pairs

    def _take_renamed(self, before: str, after: str, found: dict[int, int]) -> None:
        for base, other in found.items():
            self._take(base, other)
        self.renamings.append(Renaming(before=before, after=after, parameters=len(found)))

    def _left_base(self) -> dict[int, _Key]:
        return {position: _key(self._base[position]) for position in self._base_left}

    def _left_other(self) -> dict[int, _Key]:
        return {position: _key(self._other[position]) for position in self._other_left}


def unwrapped(name: str) -> str:
    """Return a parameter's name without wrappers."""
    *modules, own = name.split(".")
    return ".".join([*(part for part in modules if part not in WRAPPERS), own])


def _key(record: ParameterRecord) -> _Key:
    return unwrapped(record.name), record.shape.dims


def _unique(names: dict[int, str]) -> dict[str, int]:
    counts = Counter(names.values())
    return {name: position for position, name in names.items() if counts[name] == 1}


def _wrappers(name: str) -> str:
    return "".join(f"{part}." for part in name.split(".")[:-1] if part in WRAPPERS)


def _prefixes(names: Sequence[str]) -> Iterator[str]:
    """Yield the modules that hold most of the names, the outermost first."""
    prefix = ""
    while names:
        yield prefix
        heads = Counter(
            name[: name.index(".", len(prefix)) + 1] for name in names if "." in name[len(prefix) :]
        )
        (following, count), *_ = heads.most_common(1) or [("", 0)]
        if 2 * count <= len(names):
            return
        prefix = following
        names = [name for name in names if name.startswith(prefix)]


_Module = tuple[str, tuple[_Key, ...]]
"""Path of a module and its own parameters."""


def _modules(records: Sequence[ParameterRecord], left: Iterable[int]) -> dict[_Module, list[int]]:
    """Return the parameters that are left by the modules that own them."""
    positions: dict[str, list[int]] = {}
    for position in left:
        positions.setdefault(unwrapped(records[position].name).rpartition(".")[0], []).append(
            position
        )
    return {
        (
            path,
            tuple((records[at].name.rpartition(".")[2], records[at].shape.dims) for at in own),
        ): own
        for path, own in positions.items()
    }


def _without_numbers(path: str, own: tuple[_Key, ...]) -> _Module:
    return ".".join("*" if part.isdecimal() else part for part in path.split(".")), own


def _below(keys: dict[int, _Key], prefix: str) -> dict[_Key, int]:
    return {
        (name.removeprefix(prefix), shape): position
        for position, (name, shape) in keys.items()
        if name.startswith(prefix)
    }


def _by_root(keys: dict[int, _Key]) -> dict[str, dict[_Key, int]]:
    """Return the names below the first part of each name that has several parts."""
    roots: dict[str, dict[_Key, int]] = {}
    for position, (name, shape) in keys.items():
        root, dot, rest = name.partition(".")
        if dot:
            roots.setdefault(f"{root}.", {})[rest, shape] = position
    return roots
