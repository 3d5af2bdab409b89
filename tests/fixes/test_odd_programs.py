"""Each program of the test bed gets the edit that a reviewer would accept, or none."""

import json

import pytest

from tests.fixes.odd_programs import PROGRAMS

A_PUSH = {True: 4, False: 2}
"""How many programs of each rule a push tests, with an edit and without; all are tested nightly."""


def programs_of(rule, *, is_push):
    kinds = [
        [one for one in PROGRAMS if one.rule == rule and (one.added is not None) == has_edit]
        for has_edit in A_PUSH
    ]
    numbers = A_PUSH.values()
    return [
        program
        for kind, number in zip(kinds, numbers, strict=True)
        for program in (kind[:number] if is_push else kind[number:])
    ]


RULES = sorted({program.rule for program in PROGRAMS})
OTHERS = [rule for rule in RULES if programs_of(rule, is_push=False)]


@pytest.mark.parametrize(
    ("rule", "is_push"),
    [
        *((rule, True) for rule in RULES),
        *(pytest.param(rule, False, marks=pytest.mark.nightly) for rule in OTHERS),
    ],
)
def test_edits_are_right_or_absent(rule, is_push, tmp_path, gradscope_in):
    programs = programs_of(rule, is_push=is_push)
    for program in programs:
        (tmp_path / f"{program.name}.py").write_bytes(program.text.encode(program.encoding))
        for name, text in program.others.items():
            (tmp_path / name).write_text(text)
    names = [f"{program.name}.py" for program in programs]
    options = ("--diff", "--unsafe-fixes", "--output-format", "json")
    done = gradscope_in(tmp_path, "check", *names, *options)
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    for program in programs:
        of_program = [one for one in findings if one["target"] == f"{program.name}.py"]
        assert_edit(program, of_program)


def assert_edit(program, findings):
    found = [one for one in findings if one["rule"] == program.rule]
    assert found, (program.name, [one["rule"] for one in findings])
    fixes = [one["fix"] for one in found if "fix" in one]
    if program.added is None:
        assert fixes == [], program.name
        return
    (fix,) = fixes
    assert fix["verified"], (fix["verdict"], fix["diff"])
    lines = fix["diff"].split("\n")
    assert lines[1] == f"+++ b/{program.edited or f'{program.name}.py'}"
    added = [line[1:].strip() for line in lines[2:] if line.startswith("+")]
    assert tuple(added) == program.added
