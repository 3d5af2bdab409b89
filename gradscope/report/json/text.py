"""JSON objects as text."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gradscope.recording.encoding import spell
from gradscope.report.json.shape import Json, Object


def finite(value: Json) -> Json:
    """Return the value with NaN and infinities, which JSON cannot hold, as their names."""
    if isinstance(value, float):
        return spell(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(item) for item in value]
    return value


def indented(value: Json, *, ensure_ascii: bool = True) -> str:
    """Return a value as JSON, a key or an item a line."""
    return json.dumps(finite(value), indent=2, ensure_ascii=ensure_ascii, allow_nan=False)


def object_text(whole: Object) -> str:
    """Return an object as JSON, a row of its lists a line: two can be compared by `diff`."""
    parts = ",\n".join(f" {_compact(key)}: {_part(part)}" for key, part in whole.items())
    return f"{{\n{parts}\n}}"


def lines_of(whole: Object, kinds: Mapping[str, str]) -> Iterator[tuple[str, Object]]:
    """Yield the parts of an object, each after its kind; the keys without a kind are the first.

    Args:
        whole: A whole report.
        kinds: Kind of a line by key, in the order of the lines. A list is a line an item.
    """
    yield "meta", {key: part for key, part in whole.items() if key not in kinds}
    for key, kind in kinds.items():
        part = whole.get(key)
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, dict):
                yield kind, item


def lines_text(lines: Iterable[tuple[str, Object]]) -> str:
    """Return objects as JSON, each on a line of its own that `kind` names."""
    return "\n".join(_compact({"kind": kind, **part}) for kind, part in lines)


def _part(part: Json) -> str:
    if not isinstance(part, list) or not part:
        return _compact(part)
    rows = ",\n".join(f"  {_compact(row)}" for row in part)
    return f"[\n{rows}\n ]"


def _compact(value: Json) -> str:
    return json.dumps(finite(value), allow_nan=False)
