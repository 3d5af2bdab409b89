"""The file of a baseline: JSON, an entry a line, made to be committed, read and merged."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from gradscope.check.baseline_entry import LEVELS, Entry
from gradscope.errors import GradscopeError
from gradscope.files import written_whole
from gradscope.recording.encoding import spell
from gradscope.recording.finding import Severity

SCHEMA_VERSION = 1
"""Grows when an older gradscope could no longer read the file."""

_APPLICATION = "gradscope baseline"
_CONFLICT = re.compile(r"^(?:<{7}|\|{7}|>{7})(?: |$)", re.MULTILINE)

Json = str | float | bool | None | list["Json"] | dict[str, "Json"]


def read_entries(path: Path) -> tuple[Entry, ...]:
    """Return what a baseline's file holds.

    Raises:
        GradscopeError: There is no such file, or it is damaged, another program's, a newer
            gradscope's, or holds a merge that was not resolved.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise GradscopeError(
            f"there is no baseline `{path}`",
            help="create one with gradscope check --write-baseline",
        ) from None
    except OSError as error:
        raise GradscopeError(f"cannot read `{path}`", cause=error.strerror) from error
    except UnicodeDecodeError:
        raise _damaged(path, "it is not UTF-8 text") from None
    if (mark := _CONFLICT.search(text)) is not None:
        line = text.count("\n", 0, mark.start()) + 1
        raise GradscopeError(
            f"`{path}` has an unresolved merge conflict in line {line}",
            help="keep the lines of both sides, then sort them with --write-baseline",
        )
    return _entries(path, _parsed(path, text))


def _parsed(path: Path, text: str) -> Json:
    try:
        parsed: Json = json.loads(text)
    except json.JSONDecodeError as error:
        raise _damaged(path, f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "it is not valid JSON") from None
    return parsed


def _entries(path: Path, document: Json) -> tuple[Entry, ...]:
    if not isinstance(document, dict) or document.get("application") != _APPLICATION:
        raise GradscopeError(
            f"`{path}` is not a gradscope baseline", help="name another file, or remove it"
        )
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(path, "`schema_version` is not a known version")
    if version > SCHEMA_VERSION:
        raise GradscopeError(
            f"`{path}` was written by a newer gradscope", help="install that version or a newer one"
        )
    findings = document.get("findings")
    if not isinstance(findings, list):
        raise _damaged(path, "`findings` is not a list")
    found = []
    for number, item in enumerate(findings, 1):
        try:
            found.append(_entry(item))
        except ValueError as error:
            raise _damaged(path, f"finding {number}: {error}") from None
    return tuple(found)


def _damaged(path: Path, cause: str) -> GradscopeError:
    return GradscopeError(
        f"the baseline `{path}` is damaged",
        cause=cause,
        help="restore it from version control, or remove it and use --write-baseline",
    )


def _entry(item: Json) -> Entry:
    if not isinstance(item, dict):
        raise ValueError("it is not an object")
    return Entry(
        target=_text(item, "target"),
        rule=_text(item, "rule"),
        name=_text(item, "name"),
        fingerprint=_text(item, "fingerprint"),
        subjects=_texts(item, "subjects"),
        level=_level(item),
        count=_whole(item.get("count"), "count"),
        measure=_measure(item.get("measure")),
        seeds=tuple(_whole(seed, "seeds") for seed in _list(item, "seeds")),
        file=_text(item, "file", ""),
        function=_text(item, "function", ""),
        code=_text(item, "code", ""),
    )


def _text(item: Mapping[str, Json], key: str, default: str | None = None) -> str:
    value = item.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"`{key}` is missing" if value is None else f"`{key}` is not a string")
    return value


def _list(item: Mapping[str, Json], key: str) -> list[Json]:
    value = item.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"`{key}` is not a list")
    return value


def _texts(item: Mapping[str, Json], key: str) -> tuple[str, ...]:
    values = _list(item, key)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"`{key}` holds more than strings")
    return tuple(map(str, values))


def _level(item: Mapping[str, Json]) -> Severity:
    level = next((known for known in LEVELS if known == item.get("level")), None)
    if level is None:
        raise ValueError("`level` is not one of " + ", ".join(LEVELS))
    return level


def _whole(value: Json, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"`{key}` is not a whole number")
    return value


def _measure(value: Json) -> tuple[str, float] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("`measure` is not one number with its name")
    ((name, number),) = value.items()
    if isinstance(number, bool) or not isinstance(number, int | float | str):
        raise ValueError(f"`{name}` is not a number")
    try:
        return name, float(number)
    except (ValueError, OverflowError):
        raise ValueError(f"`{name}` is not a number") from None


def write_entries(path: Path, entries: Iterable[Entry]) -> None:
    """Write a baseline's file, the same bytes for the same entries in any order.

    A file that was there stays whole until it is replaced.

    Raises:
        GradscopeError: It cannot be written.
    """
    try:
        with written_whole(path) as file:
            file.write_text(baseline_text(entries), encoding="utf-8", newline="\n")
    except OSError as error:
        raise GradscopeError(f"cannot write `{path}`", cause=error.strerror) from error


def baseline_text(entries: Iterable[Entry]) -> str:
    """Return the file's text; sorted entries keep merge conflicts rare."""
    lines = sorted((one.target, one.file, one.rule, _line(one)) for one in entries)
    findings = ",\n".join(f"    {line}" for *_, line in lines)
    body = f"[\n{findings}\n  ]" if findings else "[]"
    return (
        f'{{\n  "application": "{_APPLICATION}",\n  "findings": {body},\n'
        f'  "schema_version": {SCHEMA_VERSION}\n}}\n'
    )


def _line(entry: Entry) -> str:
    """Return an entry as a JSON object without empty fields."""
    measure = None if entry.measure is None else {entry.measure[0]: spell(entry.measure[1])}
    values: dict[str, object] = {
        "target": entry.target,
        "rule": entry.rule,
        "name": entry.name,
        "fingerprint": entry.fingerprint,
        "subjects": entry.subjects or None,
        "level": entry.level,
        "count": entry.count,
        "measure": measure,
        "seeds": entry.seeds or None,
        "file": entry.file or None,
        "function": entry.function or None,
        "code": entry.code or None,
    }
    known = {key: value for key, value in values.items() if value is not None}
    text = json.dumps(known, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if any(0xD800 <= ord(sign) < 0xE000 for sign in text):  # of odd paths; UTF-8 cannot hold it
        return json.dumps(known, sort_keys=True, allow_nan=False)
    return text
