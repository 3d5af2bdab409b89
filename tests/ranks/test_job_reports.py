"""A job as one thing: each command takes its ranks together, in every format."""

import csv
import io
import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from gradscope.analysis.norms import global_norms
from gradscope.analysis.ranks.job import Job, kind_of
from gradscope.analysis.ranks.job_summary import rank_series
from gradscope.analysis.ranks.joined import joined_recording
from gradscope.cli import rank_recordings
from gradscope.recording.norm_table import norms_of
from gradscope.recording.paths import FORMAT
from gradscope.recording.store import load_recording
from tests.nightly import some_on_push
from tests.rules.ranks.running import script

LOOP = """
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
"""
WRAPS = {
    "ddp": "model = DDP(Net())",
    "fsdp2": """
from torch.distributed.fsdp import fully_shard
model = Net()
fully_shard(model.body)
fully_shard(model)
""",
}
SCHEMAS = {
    name: json.loads(files("gradscope").joinpath(f"schemas/{name}-1.json").read_text())
    for name in ("report", "check", "compare")
}


@pytest.fixture(scope="module")
def folder(jobs, tmp_path_factory):
    """A folder with the jobs `ddp` and `fsdp2`, of the same training."""
    found = tmp_path_factory.mktemp("jobs")
    for name, wrap in WRAPS.items():
        path = script(LOOP.format(wrap=wrap), found)
        jobs.run(["run", "--quiet", "--save", found / f"{name}.gradscope", path], found)
    return found


@pytest.fixture
def command(command, folder, monkeypatch):
    """The command line, in the folder of the jobs."""
    monkeypatch.chdir(folder)
    return command


def ranks(folder, name):
    return [load_recording(folder / f"{name}.rank{rank}.gradscope") for rank in (0, 1)]


@pytest.mark.nightly
def test_joined_norms_of_shards_are_those_of_replicas(folder):
    sharded, replicated = joined_recording(ranks(folder, "fsdp2")), ranks(folder, "ddp")[0]
    assert not any(one.is_shard for one in sharded.parameters)
    names = [{one.index: one.name for one in two.parameters} for two in (sharded, replicated)]
    tables = [norms_of(one) for one in (sharded, replicated)]
    found = [
        {
            (step, known[index]): norm
            for step, index, norm in zip(
                table.steps, table.parameters, table.gradients, strict=True
            )
        }
        for known, table in zip(names, tables, strict=True)
    ]
    assert len(found[0]) == 6 * 6
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    whole = [norm.norm for norm in global_norms(Job.of(ranks(folder, "fsdp2")), "step")]
    table = tables[0]
    totals = [math.hypot(*(table.gradients[row] for row in table.rows_of(s))) for s in range(6)]
    assert totals == pytest.approx(whole, rel=1e-6)


def test_without_a_rank_nothing_is_joined(folder):
    first = ranks(folder, "fsdp2")[0]
    assert joined_recording([first]) is first
    assert any(one.is_shard for one in first.parameters)


def test_steps_that_a_rank_did_not_measure_are_left_out(folder):
    one, other = ranks(folder, "fsdp2")
    table = norms_of(other)
    cut = table.rows_of(4).start
    columns = ("steps", "parameters", "reaches", "gradients", "weights", "updates")
    less = replace(table, **{name: getattr(table, name)[:cut] for name in columns})
    joined = norms_of(joined_recording([one, replace(other, parameter_stats=less)]))
    assert sorted(set(joined.steps)) == [0, 1, 2, 3]


def test_a_comparison_takes_jobs_by_their_names(command):
    code, out, _ = command("compare", "fsdp2.gradscope", "ddp.gradscope", "--output-format", "json")
    value = json.loads(out)
    jsonschema.validate(value, SCHEMAS["compare"])
    assert code == 0
    assert [side["ranks"]["strategy"] for side in value["sides"]] == ["FSDP2 over 2", "DDP"]
    assert [side["ranks"]["recorded"] for side in value["sides"]] == [[0, 1], [0, 1]]
    sharded, replicated = (side["grad_norm"] for side in value["sides"])
    assert sharded == pytest.approx(replicated, rel=1e-5)
    assert value["verdict"]["regressions"] == []


def test_files_of_two_jobs_are_two_sides_and_those_of_one_are_its_ranks(command):
    both = [f"{name}.rank{rank}.gradscope" for name in WRAPS for rank in (0, 1)]
    value = json.loads(command("compare", *both, "--output-format", "json")[1])
    assert [side["name"] for side in value["sides"]] == ["ddp.gradscope", "fsdp2.gradscope"]
    value = json.loads(command("compare", *both[:2], "--output-format", "json")[1])
    assert [side["rank"] for side in value["sides"]] == [0, 1]
    assert value["of_ranks"] is True


def test_an_export_takes_a_job(command):
    told = "ddp.rank1.gradscope", "ddp.rank0.gradscope", "--to", "csv"
    code, out, _ = command("export", *told, "--table", "ranks")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["rank"], row["step"]) for row in rows] == [
        (f"{rank}", f"{step}") for rank in (0, 1) for step in range(6)
    ]
    assert len({row["loss"] for row in rows}) == 12
    sharded, replicated = (
        [float(row["grad_norm"]) for row in csv.DictReader(io.StringIO(out))]
        for out in (
            command("export", f"{name}.gradscope", "--to", "csv", "--table", "steps")[1]
            for name in ("fsdp2", "ddp")
        )
    )
    assert sharded == pytest.approx(replicated, rel=1e-4)


FORMATS = (
    "full",
    "concise",
    "json",
    "jsonl",
    "markdown",
    "html",
    "github",
    "gitlab",
    "junit",
    "sarif",
)


@pytest.mark.parametrize("form", some_on_push(FORMATS, 3))
def test_report_and_clip_report_take_a_job_in_every_format(command, form):
    for name in ("report", "clip-report"):
        code, out, _ = command(name, "fsdp2.gradscope", "--output-format", form)
        assert code == 0
        if form == "json":
            value = json.loads(out)
            jsonschema.validate(value, SCHEMAS["report"])
            assert [row["rank"] for row in value["ranks"]["recorded"]] == [0, 1]
        elif form == "jsonl":
            kinds = [json.loads(line)["kind"] for line in out.splitlines()]
            assert kinds.count("ranks") == kinds.count("meta") == 1
        elif form in ("full", "markdown", "html"):
            assert "2 ranks · FSDP2 over 2 · gloo" in out


def test_the_header_names_the_rank_everywhere(command):
    for form in ("full", "markdown", "html"):
        for more in ((), ("--step", "0")):
            told = ("report", "fsdp2.rank1.gradscope", "--output-format", form, *more)
            out = command(*told)[1]
            assert "rank 1 of 2 · FSDP2 over 2 · gloo" in out
            assert "the part that rank 1 holds" in " ".join(out.split())


def test_a_job_is_not_run_again_to_verify_fixes(command):
    code, _, told = command("fix", "ddp.gradscope", "--verify", "2")
    assert code == 2 and "the recording is of several ranks" in told


def test_the_page_shows_ranks_side_by_side(command):
    page = command("report", "ddp.gradscope", "--output-format", "html")[1]
    assert "Ranks by step" in page
    assert '"rank 0","rank 1"' in page
    assert (
        "Ranks by step"
        not in command("report", "ddp.rank0.gradscope", "--output-format", "html")[1]
    )


@pytest.mark.nightly
def test_the_page_of_a_check_shows_ranks_side_by_side(command):
    page = command("check", "fsdp2.gradscope", "--output-format", "html")[1]
    assert "Ranks by step" in page
    assert '"rank 0","rank 1"' in page
    assert "Global gradient norm over all ranks" in page


@pytest.mark.nightly
def test_recordings_that_are_no_job_are_one_line_and_code_2(folder, command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # a table of targets would divide long paths
    empty = tmp_path / "empty"
    empty.mkdir()
    mixed = ("ddp.rank0.gradscope", "fsdp2.rank1.gradscope")
    first, commands = "ddp.rank0.gradscope", ("report", "check", "clip-report")
    newer, cut, twin = (tmp_path / f"{name}.rank1.gradscope" for name in ("newer", "cut", "twin"))
    for path in (newer, cut, twin):
        path.write_bytes((folder / "ddp.rank1.gradscope").read_bytes())
    with closing(sqlite3.connect(newer)) as base, base:
        base.execute(f"PRAGMA user_version = {FORMAT + 1}")
    cut.write_bytes(cut.read_bytes()[:3000])
    table = ("--to", "csv", "--table", "steps")
    for arguments, words in [
        (("export", *mixed, *table), "are ranks of different jobs"),
        (("clip-report", *mixed), "are ranks of different jobs"),
        (("compare", ".", "ddp.gradscope"), "are ranks of different jobs"),
        (("report", empty), "holds no recording"),
        (("report", "none.gradscope"), "cannot read `none.gradscope`"),
        (("check", *mixed), "are ranks of different jobs"),
        *[((name, first, newer), "newer.rank1.gradscope` has format") for name in commands],
        *[((name, first, cut), "cannot read `") for name in commands],
        *[
            ((name, first, first.replace("rank0", "rank1"), twin), "are both of")
            for name in commands
        ],
        (("compare", first, newer), "has format"),
    ]:
        code, out, told = command(*arguments)
        assert code == 2
        assert not out or arguments[0] == "check"  # which lists its targets, and their failures
        assert words in told + out
        assert "Traceback" not in told


def copied(folder, target, count):
    """Write ranks of a larger job: copies of one under other numbers."""
    for rank in range(count):
        path = target / f"large.rank{rank}.gradscope"
        path.write_bytes((folder / "ddp.rank0.gradscope").read_bytes())
        with closing(sqlite3.connect(path)) as base, base:
            base.execute("UPDATE rank_identity SET rank = ?, world_size = ?", (rank, count + 1))
            base.execute("UPDATE step SET loss = loss + ?", (rank,))


def test_a_missing_rank_is_told_and_the_others_are_reported(folder, command, tmp_path):
    copied(folder, tmp_path, 3)
    code, out, told = command("report", tmp_path, "--output-format", "json")
    value = json.loads(out)
    assert code == 0
    assert "no recording of rank 3 of 4" in told
    assert value["ranks"]["missing"] == [3]
    _, out, told = command("check", tmp_path, "--output-format", "json")
    value = json.loads(out)
    jsonschema.validate(value, SCHEMAS["check"])
    assert told.count("no recording of rank 3 of 4") == 1
    (run,) = value["targets"][0]["runs"]
    assert run["ranks"]["missing"] == [3]
    assert [row["rank"] for row in run["ranks"]["recorded"]] == [0, 1, 2]


@pytest.mark.nightly
def test_of_a_large_job_one_rank_of_each_kind_is_read_in_full(folder, tmp_path):
    copied(folder, tmp_path, 20)
    odd = tmp_path / "large.rank7.gradscope"
    with closing(sqlite3.connect(odd)) as base, base:
        base.execute("UPDATE step SET loss = 'NaN' WHERE step = 4")
    (job,) = rank_recordings.loaded_jobs([tmp_path])
    full = [at for at, one in enumerate(job.recordings) if not one.is_outline]
    assert full == [0, 7]
    assert kind_of(job.recordings[1]) == kind_of(job.recordings[0]) != kind_of(job.recordings[7])
    series = rank_series(job.recordings)
    assert [one.rank for one in series] == list(range(20))
    # An outline has the norms of the steps that ranks compare.
    assert dict(series[1].norms) == pytest.approx(dict(series[0].norms), rel=1e-6)
