"""The user's configuration: `[tool.gradscope]` in a pyproject.toml."""

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from gradscope.errors import GradscopeError
from gradscope.rules.catalogue import RULES
from gradscope.rules.rule import Rule
from gradscope.rules.selection import rules_named
from gradscope.rules.settings import DEFAULT_SETTINGS, Settings

FILE_NAME = "pyproject.toml"
KEYS = ("select", "ignore", "extend-select", "rules", "per-module-ignores")
"""Of the table `tool.gradscope`."""


def configured_settings(file: Path | None = None) -> Settings:
    """Return the settings of a file, or of the nearest pyproject.toml that has any.

    Args:
        file: Searched from the working directory upward where it is None.

    Raises:
        GradscopeError: The file cannot be read or has no `[tool.gradscope]`; a key is unknown, a
            value of the wrong type, or it names a rule that does not exist.
    """
    if file is not None:
        table = _table_in(file)
        if table is None:
            raise GradscopeError(f"`{file}` has no table [tool.gradscope]")
        return _settings(table)
    folder = Path.cwd()
    for parent in (folder, *folder.parents):
        path = parent / FILE_NAME
        table = _table_in(path, shown=FILE_NAME if parent == folder else str(path))
        if table is not None:
            return _settings(table)
    return DEFAULT_SETTINGS


def with_options(
    settings: Settings,
    *,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
) -> Settings:
    """Return configured settings as selectors of the command line change them.

    What is given there takes the place of what is configured. A configured `ignore` stays beside a
    `select`, unless both name the same rules; a configured `extend-select` stays as far as no
    `ignore` names its rules.

    Raises:
        GradscopeError: A selector names no rule.
    """
    selected = [set(rules_named(selector)) for selector in select]
    ignored = {rule for selector in ignore for rule in rules_named(selector)}
    kept_ignores = (one for one in settings.ignore if set(rules_named(one)) not in selected)
    kept_extensions = (
        one for one in settings.extend_select if not select and not ignored >= {*rules_named(one)}
    )
    return dataclasses.replace(
        settings,
        select=select or settings.select,
        ignore=ignore or tuple(kept_ignores),
        extend_select=(*kept_extensions, *extend_select),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table of the file, whose errors name the file and the key."""

    file: str
    name: str
    values: Mapping[str, object]

    def fail(self, key: str, wrong: str, *, help: str | None = None) -> NoReturn:
        raise GradscopeError(f"`{self._path(key)}` in {self.file} {wrong}", help=help)

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def check_keys(self, known: Iterable[str], what: str) -> None:
        names = tuple(known)
        for key in self.values:
            if key not in names:
                close = get_close_matches(key, names, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(names)}"
                self.fail(key, f"is no {what}", help=hint if names else None)

    def table(self, key: str) -> "_Table":
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.fail(key, "has to be a table")
        return _Table(file=self.file, name=self._path(key), values=value)

    def selectors(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(key, "has to be a list of strings", help='as in ["GS101", "reach"]')
        for selector in value:
            try:
                rules_named(selector)
            except GradscopeError as error:
                self.fail(key, f"names what is not there: {error.what}", help=error.help)
        return tuple(value)

    def number(self, key: str, *, is_whole: bool) -> float:
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self.fail(key, "has to be a number")
        if is_whole and not isinstance(value, int):
            self.fail(key, "has to be a whole number")
        return value


def _table_in(path: Path, shown: str | None = None) -> _Table | None:
    """Return the table `tool.gradscope` of a file, None where there is no such table or file."""
    name = shown or str(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if shown is not None:
            return None
        raise GradscopeError(f"there is no file `{name}`") from None
    except OSError as error:
        raise GradscopeError(f"cannot read `{name}`", cause=error.strerror) from None
    except ValueError as error:  # of TOML as of UTF-8
        raise GradscopeError(f"`{name}` is no valid TOML", cause=str(error)) from None
    tool = _Table(file=name, name="", values=content).table("tool")
    return tool.table("gradscope") if "gradscope" in tool.values else None


def _settings(table: _Table) -> Settings:
    table.check_keys(KEYS, "option of gradscope")
    modules = table.table("per-module-ignores")
    return Settings(
        select=table.selectors("select"),
        ignore=table.selectors("ignore"),
        extend_select=table.selectors("extend-select"),
        thresholds=_thresholds(table.table("rules")),
        per_module_ignores={pattern: modules.selectors(pattern) for pattern in modules.values},
    )


def _thresholds(table: _Table) -> dict[str, dict[str, float]]:
    by_name = {rule.name: rule for rule in RULES}
    for key in table.values:
        for rule in RULES:
            if key.upper() == rule.code:
                table.fail(key, "is a rule's code", help=f"[{table.name}.{rule.name}]")
    table.check_keys(by_name, "rule")
    return {name: _thresholds_of(by_name[name], table.table(name)) for name in table.values}


def _thresholds_of(rule: type[Rule], table: _Table) -> dict[str, float]:
    defaults = {field.name: field.default for field in dataclasses.fields(rule)}
    table.check_keys(defaults, f"threshold of {rule.name}")
    return {key: table.number(key, is_whole=isinstance(defaults[key], int)) for key in table.values}
