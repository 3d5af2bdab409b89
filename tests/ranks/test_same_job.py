"""A watched job gives the same losses, weights, gradients and random states as a bare one."""

import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("same_job.py")
# Read from its text: what it imports takes long.
JOBS = re.findall(r'^    "([\w-]+)": ', SCRIPT.read_text(), re.MULTILINE)
ON_FOUR = ("ddp-no-sync", "ddp-unused", "fsdp2-mixed", "hybrid", "tp", "tp-fsdp2", "pipeline-1f1b")
ALWAYS = ("fsdp2-mixed",)
"""Those that every push tests: it keeps most apart, parts of low precision."""
CASES = [
    pytest.param(name, ranks, marks=() if name in ALWAYS and ranks == 2 else pytest.mark.nightly)
    for name in JOBS
    for ranks in ((2, 4) if name in ON_FOUR else (2,))
    if (name, ranks) != ("tp-fsdp2", 2)  # it has two dimensions of two
]


@pytest.mark.parametrize(("name", "ranks"), CASES)
def test_a_watched_job_is_the_same_to_the_bit(jobs, tmp_path, name, ranks):
    if name == "accelerate":
        pytest.importorskip("accelerate")
    arguments = ["run", "--quiet", "--save", "job.gradscope", SCRIPT, name]
    bare = jobs.run(arguments, tmp_path / "bare", ranks=ranks, environment={"GRADSCOPE": "off"})
    watched = jobs.run(arguments, tmp_path / "watched", ranks=ranks)
    assert {code for code, *_ in bare} == {0}, bare
    assert {code for code, *_ in watched} == {0}, watched
    assert not list((tmp_path / "bare").glob("*.gradscope"))
    assert len(list((tmp_path / "watched").glob("*.gradscope"))) == ranks
    assert [out for _, out, _ in watched] == [out for _, out, _ in bare]
    assert all(out.count("\n") >= 8 for _, out, _ in bare)
    assert not [err for *_, err in watched if "recording ended" in err]
