"""The sample scripts whose mistakes, if any, single backward passes show: found where they say."""

import re
from pathlib import Path

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

SCRIPTS = sorted((Path(__file__).parents[3] / "sample_models" / "training").glob("*.py"))


def marks(path: Path) -> set[tuple[str, int]]:
    """Return the rules that a file's lines say they break, with the lines."""
    lines = enumerate(path.read_text().splitlines(), 1)
    found = ((re.search(r"# (GS\d{3})$", line), number) for number, line in lines)
    return {(mark[1], number) for mark, number in found if mark}


@pytest.mark.parametrize("path", some_on_push(SCRIPTS, 3), ids=[path.stem for path in SCRIPTS])
def test_a_script_breaks_the_rules_that_it_says(path, tmp_path):
    found = findings_of_script(path, tmp_path)
    assert {(one.rule, one.location.line) for one in found} == marks(path)
    assert all(one.severity == "error" for one in found)
