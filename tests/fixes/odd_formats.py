"""Programs in odd formats, each written down in full."""

import tomllib
from pathlib import Path

from tests.fixes.odd_program import Program


def _programs():
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(text)["programs"]:
        line_break = entry.pop("line_break", "\n")
        added = entry.pop("added", None)
        yield Program(
            **entry | {"text": entry["text"].replace("\n", line_break)},
            added=None if added is None else tuple(added),
        )


PROGRAMS = [*_programs()]
