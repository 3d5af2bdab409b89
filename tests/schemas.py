"""Writes the JSON schemas that the package ships, from the shapes of its reports.

`python tests/schemas.py` writes them again after a shape has changed.
"""

import json
from pathlib import Path

import gradscope
from gradscope.report.json import check, comparison, report
from gradscope.report.json.schema import schema_of

FOLDER = Path(gradscope.__file__).parent / "schemas"

SCHEMAS = {
    "report-1.json": (report.Whole, "Report of gradscope"),
    "check-1.json": (check.Check, "Check of gradscope"),
    "compare-1.json": (comparison.Whole, "Comparison of gradscope"),
}
"""Shape and title by file."""


def schema_text(name: str) -> str:
    """Return the text of a schema's file."""
    return json.dumps(schema_of(*SCHEMAS[name]), indent=2) + "\n"


def main() -> None:
    """Write all schemas."""
    for name in SCHEMAS:
        (FOLDER / name).write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
