"""Each program of the test bed gets the edit that a reviewer would accept, or none."""

from collections import Counter
from pathlib import Path

import pytest

from tests.fixes import (
    odd_clips,
    odd_copies,
    odd_formats,
    odd_groups,
    odd_programs,
    odd_trainings,
    odd_updates,
)
from tests.fixes.in_process import fixes_of, training_report
from tests.nightly import some_on_push
from tests.rules.inspecting import report_of_file

PROGRAMS = [
    *odd_programs.PROGRAMS,
    *odd_copies.PROGRAMS,
    *odd_trainings.PROGRAMS,
    *odd_updates.PROGRAMS,
    *odd_groups.PROGRAMS,
    *odd_formats.PROGRAMS,
    *odd_clips.PROGRAMS,
]
A_PUSH = 1
"""How many programs of each rule a push tests; all are tested nightly."""


def marked(programs):
    """Yield the programs, marked by whether a push tests them."""
    seen = Counter()
    for program in programs:
        seen[program.rule] += 1
        marks = [] if seen[program.rule] <= A_PUSH else [pytest.mark.nightly]
        yield pytest.param(program, id=program.name, marks=marks)


@pytest.mark.parametrize("program", some_on_push([*marked(PROGRAMS)], 4))
def test_edit_is_right_or_absent(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / f"{program.name}.py"
    path.write_bytes(program.text.encode(program.encoding))
    for name, text in program.others.items():
        (tmp_path / name).write_text(text)
    run = training_report if program.is_training else report_of_file
    before, fixes = fixes_of(path, program.rule, run)
    assert program.rule in [one.rule for one in before.findings], before.findings
    if program.added is None:
        assert fixes == []
        return
    (fix,) = fixes
    assert fix.is_verified, (fix.verdict, fix.diff)
    assert [Path(file).name for file in fix.texts] == [program.edited or path.name]
    assert fix.added == program.added, fix.diff
