"""The parts of a model that a set of its parameters makes up, and their names for a message."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from gradscope.frozen import dataclass
from gradscope.recording.records import ModuleRecord, ParameterRecord, Recording

MOST_NAMED = 3
"""Maximum number of names in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A module all of whose trainable parameters are in a set, or one parameter by itself."""

    name: str
    """Path of the module; empty for the whole model."""
    module: int | None
    """Index of the module; None for a parameter whose module is only partly in the set."""
    parameters: frozenset[int]
    site: int | None
    """Line that made it."""


@dataclass(frozen=True)
class Subtrees:
    """The modules of a model with all that is below them."""

    recording: Recording

    @cached_property
    def trainable(self) -> dict[int, frozenset[int]]:
        """By module: the parameters in it and below it that require grad."""
        found: dict[int, set[int]] = {}
        for parameter in self.recording.parameters:
            if parameter.requires_grad:
                for module in self.lineage(parameter.module):
                    found.setdefault(module, set()).add(parameter.index)
        return {module: frozenset(parameters) for module, parameters in found.items()}

    def lineage(self, module: int) -> Iterator[int]:
        """Yield a module and the modules around it, innermost first."""
        position: int | None = module
        while position is not None:
            yield position
            position = self.recording.modules[position].parent

    def parts(self, parameters: Iterable[int]) -> tuple[Part, ...]:
        """Return the largest modules whose parameters are all among these, and the rest."""
        wanted = frozenset(parameters)
        found: dict[tuple[int | None, int], Part] = {}
        for index in sorted(wanted):
            record = self.recording.parameters[index]
            whole = [
                module
                for module in self.lineage(record.module)
                if self.trainable[module] <= wanted and not self._is_partial_root(module)
            ]
            part = self._module(whole[-1]) if whole else _alone(record)
            found.setdefault((part.module, -1 if whole else index), part)
        return tuple(found.values())

    def _is_partial_root(self, module: int) -> bool:
        """Return whether a module without a path, as a script is, lacks modules beside it."""
        if self.recording.modules[module].path:
            return False
        trainable = sum(one.requires_grad for one in self.recording.parameters)
        return len(self.trainable[module]) < trainable

    def _module(self, index: int) -> Part:
        module = self.recording.modules[index]
        parameters = self.trainable[index]
        site = module.site
        if site is None:
            sites = (self.recording.parameters[position].site for position in sorted(parameters))
            site = next((one for one in sites if one is not None), None)
        return Part(name=module.path, module=index, parameters=parameters, site=site)

    def twins(self, part: Part, among: frozenset[int]) -> Iterator[int]:
        """Yield the modules built alike that have all their parameters in another set."""
        if part.module is None:
            return
        build = self._build(self.recording.modules[part.module])
        for module, parameters in self.trainable.items():
            is_other = module != part.module and parameters <= among
            if is_other and self._build(self.recording.modules[module]) == build:
                yield module

    def _build(self, module: ModuleRecord) -> tuple[object, ...]:
        prefix = len(module.path) + 1 if module.path else 0
        parameters = (self.recording.parameters[p] for p in sorted(self.trainable[module.index]))
        return (module.class_name, *((p.name[prefix:], p.shape) for p in parameters))


def _alone(record: ParameterRecord) -> Part:
    return Part(
        name=record.name, module=None, parameters=frozenset({record.index}), site=record.site
    )


def named(parts: Iterable[Part]) -> str:
    """Return the names of parts for a message, the first few of many."""
    names = [part.name or "the whole model" for part in parts]
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
