"""Each program of the test bed gets the edit that a reviewer would accept, or none."""

import json

import pytest

from tests.fixes.odd_programs import PROGRAMS


@pytest.fixture(scope="module")
def checked(tmp_path_factory, fixing_in, request):
    """Returns the findings of every program that is tested, from one check of all."""
    folder = tmp_path_factory.mktemp("programs")
    items = [item for item in request.session.items if item.module is request.module]
    programs = [item.callspec.params["program"] for item in items]
    for program in programs:
        (folder / f"{program.name}.py").write_bytes(program.text.encode(program.encoding))
        for name, text in program.others.items():
            (folder / name).write_text(text)
    names = [f"{program.name}.py" for program in programs]
    done = fixing_in(folder, "check", *names, "--diff", "--unsafe-fixes", "--output-format", "json")
    assert done.stdout, done.stderr
    found: dict[str, list] = {name: [] for name in names}
    for finding in json.loads(done.stdout)["findings"]:
        found[finding["target"]].append(finding)
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_edit_is_right_or_absent(program, checked):
    found = [one for one in checked[f"{program.name}.py"] if one["rule"] == program.rule]
    assert found, [one["rule"] for one in checked[f"{program.name}.py"]]
    fixes = [one["fix"] for one in found if "fix" in one]
    if program.added is None:
        assert fixes == []
        return
    (fix,) = fixes
    assert fix["verified"], (fix["verdict"], fix["diff"])
    lines = fix["diff"].split("\n")
    assert lines[1] == f"+++ b/{program.edited or f'{program.name}.py'}"
    added = [line[1:].strip() for line in lines[2:] if line.startswith("+")]
    assert tuple(added) == program.added
