"""A comparison as JSON, by `gradscope/schemas/compare-1.json`: one object, or one object a line."""

import json

from gradscope.comparison.comparison import Comparison
from gradscope.report.comparison.objects import comparison_lines, comparison_object
from gradscope.report.objects import Json, finite


def render_json(comparison: Comparison) -> str:
    """Return the whole comparison as one object, a parameter or a finding a line."""
    whole = comparison_object(comparison)
    parts = ",\n".join(f" {_compact(key)}: {_part(part)}" for key, part in whole.items())
    return f"{{\n{parts}\n}}"


def render_jsonl(comparison: Comparison) -> str:
    """Return its parts, each object on a line of its own that `kind` names."""
    return "\n".join(
        _compact({"kind": kind, **part}) for kind, part in comparison_lines(comparison)
    )


def _part(part: Json) -> str:
    if not isinstance(part, list) or not part:
        return _compact(part)
    rows = ",\n".join(f"  {_compact(row)}" for row in part)
    return f"[\n{rows}\n ]"


def _compact(value: Json) -> str:
    return json.dumps(finite(value), allow_nan=False)
