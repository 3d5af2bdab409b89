"""The file of a baseline: read as written, refused when it is none, fit for version control."""

import json
import math
import os
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.check.baseline_file import LEVELS, Entry, baseline_text, read_entries, write_entries
from gradscope.errors import GradscopeError

TEXTS = st.text(max_size=12)
ENTRIES = st.builds(
    Entry,
    target=TEXTS,
    rule=TEXTS,
    name=TEXTS,
    fingerprint=TEXTS,
    subjects=st.lists(TEXTS, max_size=3).map(tuple),
    level=st.sampled_from(LEVELS),
    count=st.integers(),
    measure=st.none() | st.tuples(TEXTS, st.floats()),
    seeds=st.lists(st.integers(), max_size=3).map(tuple),
    file=TEXTS,
    function=TEXTS,
    code=st.text(st.characters(), max_size=12),
)


def entry(number, **changes):
    values = {
        "target": "model.py",
        "rule": "GS201",
        "name": "gradient-cut",
        "fingerprint": f"{number:016x}",
        "level": "error",
        "count": 1,
    }
    return Entry(**(values | changes))


@given(st.lists(ENTRIES, max_size=4))
def test_what_is_written_is_read_again_and_written_alike(tmp_path_factory, entries):
    path = tmp_path_factory.mktemp("baseline") / "baseline.json"
    write_entries(path, entries)
    text = path.read_bytes()
    read = read_entries(path)
    assert sorted(map(repr, read)) == sorted(map(repr, entries))  # NaN is not equal to itself
    write_entries(path, reversed(read))
    assert path.read_bytes() == text
    assert len(json.loads(text)["findings"]) == len(entries)


def test_an_entry_is_a_line_with_sorted_keys_and_nothing_of_the_machine(tmp_path):
    path = tmp_path / "b.json"
    write_entries(path, [entry(2, file="b.py"), entry(3, file="a.py", code="é = 1")])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[3].strip() == (
        '{"code": "é = 1", "count": 1, "file": "a.py", "fingerprint": "0000000000000003", '
        '"level": "error", "name": "gradient-cut", "rule": "GS201", "target": "model.py"},'
    )
    assert [json.loads(line.strip().rstrip(","))["file"] for line in lines[3:5]] == ["a.py", "b.py"]
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 4.0])
def test_numbers_that_are_not_finite_are_written_by_name(tmp_path, value):
    path = tmp_path / "b.json"
    write_entries(path, [entry(1, measure=("decades", value))])
    json.loads(path.read_text(), parse_constant=pytest.fail)
    ((_, read),) = (one.measure for one in read_entries(path))
    assert read == pytest.approx(value, nan_ok=True)


GOOD = baseline_text([entry(1), entry(2)])
CONFLICT = GOOD.replace("    {", "<<<<<<< HEAD\n    {", 1).replace(
    "\n  ]", "\n=======\n>>>>>>> other\n  ]"
)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is damaged"),
        ("[", "line 1"),
        (GOOD[:-20], "is damaged"),
        (CONFLICT, "an unresolved merge conflict in line 4"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        ("{}", "is not a gradscope baseline"),
        ("[]", "is not a gradscope baseline"),
        ('{"version": "2.1.0", "runs": []}', "is not a gradscope baseline"),
        (GOOD.replace('n": 1\n', 'n": 2\n'), "a newer gradscope"),
        (GOOD.replace('n": 1\n', 'n": true\n'), "`schema_version`"),
        (GOOD.replace('n": 1\n', 'n": "1"\n'), "`schema_version`"),
        (GOOD.replace('"findings"', '"found"'), "`findings` is not a list"),
        (GOOD.replace('"count": 1', '"count": 1.5', 1), "finding 1: `count`"),
        (GOOD.replace('"level": "error"', '"level": "fatal"'), "finding 1: `level`"),
        (GOOD.replace('"rule": "GS201", ', "", 1), "finding 1: `rule` is missing"),
        (
            GOOD.replace('"target": "model.py"', '"target": 3'),
            "finding 1: `target` is not a string",
        ),
        (GOOD.replace('"count"', '"measure": {"x": "far"}, "count"'), "finding 1: `x`"),
        (GOOD.replace('"count"', '"measure": [1], "count"'), "finding 1: `measure`"),
        (GOOD.replace('"count"', '"subjects": [1], "count"'), "finding 1: `subjects`"),
        (GOOD.replace('"count": 1', f'"count": {"9" * 5000}', 1), "is damaged"),
        ("[" * 100_000, "is damaged"),
    ],
)
def test_what_is_no_whole_baseline_is_refused_and_never_empty(tmp_path, content, told):
    path = tmp_path / "b.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(GradscopeError) as raised:
        read_entries(path)
    assert told in str(raised.value)
    assert str(path) in raised.value.what
    assert raised.value.help


def test_a_file_that_is_missing_or_no_file_is_told(tmp_path):
    with pytest.raises(GradscopeError, match="there is no baseline") as raised:
        read_entries(tmp_path / "b.json")
    assert "--write-baseline" in raised.value.help
    with pytest.raises(GradscopeError, match="cannot read"):
        read_entries(tmp_path)
    with pytest.raises(GradscopeError, match="cannot write"):
        write_entries(tmp_path / "missing" / "b.json", [])
    with pytest.raises(GradscopeError, match="cannot write"):
        write_entries(tmp_path, [])


def test_editors_and_checkouts_of_windows_change_nothing(tmp_path):
    path = tmp_path / "b.json"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert read_entries(path) == (entry(1), entry(2))


def test_a_marker_of_a_conflict_in_code_is_none(tmp_path):
    path = tmp_path / "b.json"
    write_entries(path, [entry(1, code="<<<<<<< HEAD")])
    assert read_entries(path)[0].code == "<<<<<<< HEAD"


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "b.json"
    write_entries(path, [entry(1)])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", full)
        with pytest.raises(GradscopeError, match="cannot write"):
            write_entries(path, [entry(2)])
    assert read_entries(path) == (entry(1),)
    assert [one.name for one in tmp_path.iterdir()] == ["b.json"]


def test_links_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    write_entries(real, [])
    real.chmod(0o640)
    link.symlink_to(real)
    write_entries(link, [entry(1)])
    assert link.is_symlink()
    assert read_entries(real) == (entry(1),)
    assert real.stat().st_mode & 0o777 == 0o640


def test_additions_of_two_branches_merge(tmp_path):
    known = [entry(n, file=f"{n:02}.py") for n in range(8)]

    def write(name, *entries):
        write_entries(tmp_path / name, [*known, *entries])
        return str(tmp_path / name)

    base = write("base.json")
    ours = write("ours.json", replace(known[0], file="01a.py"))
    theirs = write("theirs.json", replace(known[0], file="05a.py"))
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    merge = ["git", "merge-file", ours, base, theirs]
    assert subprocess.run(merge, env=environment, check=False).returncode == 0
    assert len(read_entries(tmp_path / "ours.json")) == 10
