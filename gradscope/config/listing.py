"""Lists the keys of the configuration with their values and sources."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradscope.config import keys
from gradscope.config.configuration import Configuration
from gradscope.config.document import TABLE, Source, dotted
from gradscope.config.selection import thresholds_of
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.checks import Value, did_you_mean
from gradscope.rules.catalogue import RULES
from gradscope.rules.settings import WHOLE_MODEL

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key with its value and source."""

    path: Path
    """Path of the key below `tool.gradscope`."""
    value: Value | None
    """Effective value; None without one."""
    default: Value | None = None
    source: Source | None = None
    """Location where the value was written; None for the default."""
    is_inherited: bool = False
    """Whether a target inherits the value from the top level."""

    @property
    def is_set(self) -> bool:
        """Return whether the file sets this key itself."""
        return self.source is not None and not self.is_inherited

    @property
    def key(self) -> str:
        """Return the path as TOML writes it."""
        return dotted(self.path)


def entries(configuration: Configuration, key: str | None = None) -> tuple[Entry, ...]:
    """Return the keys with their values.

    Args:
        configuration: The user's configuration.
        key: Return only this key and the keys below it. Without a key, thresholds of rules and
            options of targets are returned only if the file sets them.

    Raises:
        GradscopeError: There is no such key.
    """
    every = tuple(_entries(configuration))
    if key is None:
        return tuple(one for one in every if len(one.path) == 1 or one.is_set)
    wanted = key.strip().removeprefix(f"{dotted(TABLE)}.")
    found = tuple(one for one in every if _is_below(one.path, wanted))
    without_thresholds = {f"{keys.RULES}.{rule.name}" for rule in RULES}
    if not found and wanted not in {*keys.SUBTABLES, *without_thresholds}:
        raise _unknown(wanted, every)
    return found


def _is_below(path: Path, wanted: str) -> bool:
    """Return whether a path is a key or below it; the key may quote its parts."""
    starts = (spell(path[:end]) for end in range(1, len(path) + 1) for spell in (dotted, ".".join))
    return wanted in starts


def _unknown(wanted: str, every: tuple[Entry, ...]) -> GradscopeError:
    starts = {dotted(one.path[:end]) for one in every for end in range(1, len(one.path) + 1)}
    known = sorted(starts | set(keys.SUBTABLES))
    name = wanted.rpartition(".")[2]
    meant = [f"{keys.RULES}.{rule.name}" for rule in RULES if name.upper() == rule.code]
    hint = did_you_mean(meant[0] if meant else wanted, known)
    return GradscopeError(
        f"unknown key `{wanted}`", help=hint or "gradscope config lists every key"
    )


def _entries(configuration: Configuration) -> Iterator[Entry]:
    for name, key in keys.TOP_LEVEL.items():
        yield _entry(configuration, (name,), configuration.values, key.default)
    yield from _of_modules(configuration)
    for rule in RULES:
        values = configuration.settings.thresholds.get(rule.name, {})
        for name, default in thresholds_of(rule).items():
            path = (keys.RULES, rule.name, name)
            yield _entry(configuration, path, values, default)
    for name in configuration.targets:
        yield from _of_target(configuration, name)


def _of_modules(configuration: Configuration) -> Iterator[Entry]:
    settings = configuration.settings
    for pattern, selectors in settings.per_module_ignores.items():
        path = (keys.MODULES, pattern)
        yield Entry(path=path, value=selectors, source=configuration.sources.get(path))
    for pattern, limit in settings.norm_limits.items():
        if pattern != WHOLE_MODEL:
            for name, value in (("max", limit.maximum), ("min", limit.minimum)):
                position = (keys.NORMS, pattern, name)
                yield Entry(path=position, value=value, source=configuration.sources.get(position))


def _of_target(configuration: Configuration, name: str) -> Iterator[Entry]:
    table = configuration.targets[name]
    for key, known in keys.OF_TARGET.items():
        path = (keys.TARGETS, name, key)
        if key in table or key not in configuration.values:
            yield _entry(configuration, path, table, known.default)
        else:
            above = _entry(configuration, (key,), configuration.values, known.default)
            yield replace(above, path=path, is_inherited=True)


def _entry(
    configuration: Configuration, path: Path, given: Mapping[str, Value], default: Value | None
) -> Entry:
    key = path[-1]
    if key not in given:
        return Entry(path=path, value=default, default=default)
    # A target given as a string has no keys of its own in the file.
    source = configuration.sources.get(path) or configuration.sources.get(path[:-1])
    return Entry(path=path, value=given[key], default=default, source=source)
