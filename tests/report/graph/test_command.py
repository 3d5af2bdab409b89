"""`gradscope graph` as a process."""

import json

import pytest

from gradscope.report.graph.formats import graph_format

MODEL = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
batch = (torch.ones(2, 4), torch.zeros(2, 1))
criterion = nn.MSELoss()
"""


@pytest.fixture(scope="module")
def gradscope(gradscope_in):
    def run(folder, *arguments, code=0):
        done = gradscope_in(folder, *arguments, NO_COLOR="1")
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory, gradscope):
    folder = tmp_path_factory.mktemp("graph")
    (folder / "model.py").write_text(MODEL)
    gradscope(folder, "inspect", "model.py", "--save", "kept.gradscope", "-o", "report.txt")
    return folder


def test_target_and_recording_give_the_same_graph(folder, gradscope):
    run, kept = (
        json.loads(gradscope(folder, "graph", target, "--output-format", "json").stdout)
        for target in ("model.py", "kept.gradscope")
    )
    assert run == kept
    assert run["summary"]["operations"]["AddmmBackward0"] == 2


def test_recording_is_shown_without_torch(folder, gradscope, packages_imported_by):
    done, packages = packages_imported_by(folder, "graph", "kept.gradscope")
    assert done.returncode == 0, done.stderr
    assert "Sequential" in done.stdout
    assert "torch" not in packages


def test_output_file_takes_the_graph_and_stdout_stays_empty(folder, gradscope):
    done = gradscope(folder, "graph", "kept.gradscope", "--output-format", "dot", "-o", "g.dot")
    assert done.stdout == ""
    assert (folder / "g.dot").read_text().startswith("// Edges")


def test_folding_is_told_on_stderr(folder, gradscope):
    done = gradscope(folder, "graph", "kept.gradscope", "--output-format", "dot", "--depth", "1")
    assert "nodes folded into 3 modules" in done.stderr
    assert "nodes folded" in done.stdout


def test_unknown_module_exits_with_2(folder, gradscope):
    done = gradscope(folder, "graph", "kept.gradscope", "--module", "nowhere", code=2)
    assert "no module `nowhere`" in done.stderr
    assert done.stdout == ""


def test_cap_on_nodes_is_refused_where_none_are_drawn(folder, gradscope):
    done = gradscope(folder, "graph", "kept.gradscope", "--max-nodes", "3", code=2)
    assert "`--max-nodes` has no effect on `text`" in done.stderr
    drawn = gradscope(
        folder, "graph", "kept.gradscope", "--max-nodes", "3", "--output-format", "dot"
    )
    assert "folded into" in drawn.stdout


@pytest.mark.nightly
def test_numbers_of_the_whole_model_are_said_to_be_beside_one_module(folder, gradscope):
    note = "of the whole model:"
    assert note in gradscope(folder, "graph", "kept.gradscope", "--module", "0").stdout
    assert note not in gradscope(folder, "graph", "kept.gradscope").stdout
    assert note in gradscope(folder, "report", "kept.gradscope", "--module", "0").stdout


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("g.svg", "svg"),
        ("g.html", "html"),
        ("g.htm", "html"),
        ("g.dot", "dot"),
        ("g.gv", "dot"),
        ("g.mmd", "mermaid"),
        ("g.json", "json"),
        ("G.TXT", "text"),
        ("-", "text"),
    ],
)
def test_the_ending_says_the_format(file, form):
    assert graph_format(None, file) == form
    assert graph_format("json", file) == "json"


@pytest.mark.nightly
def test_files_are_written_in_the_format_of_their_ending(folder, gradscope):
    for file, start in (("g.svg", "<svg "), ("g.html", "<!doctype html>"), ("g.mmd", "flowchart")):
        done = gradscope(folder, "graph", "kept.gradscope", "-o", file)
        assert done.stdout == ""
        assert (folder / file).read_text(encoding="utf-8").startswith(start)


def test_an_ending_of_no_format_is_one_clear_line(folder, gradscope):
    done = gradscope(folder, "graph", "kept.gradscope", "-o", "g.png", code=2)
    assert "`g.png` has an unsupported graph format" in done.stderr
    assert ".svg" in done.stderr
    assert not (folder / "g.png").exists()
    gradscope(folder, "graph", "kept.gradscope", "-o", "g.png", "--output-format", "svg")
    assert (folder / "g.png").read_text().startswith("<svg")


def test_a_picture_of_too_many_nodes_is_refused(folder, gradscope):
    most = ("graph", "kept.gradscope", "-o", "g.svg", "--max-nodes")
    gradscope(folder, *most, "3000")
    assert "3,000 nodes at most" in gradscope(folder, *most, "3001", code=2).stderr


def test_what_a_page_cannot_do_is_refused(folder, gradscope):
    done = gradscope(folder, "graph", "kept.gradscope", "-o", "g.html", "--depth", "1", code=2)
    assert "opens modules one by one" in done.stderr
    done = gradscope(folder, "graph", "kept.gradscope", "--open", "-o", "g.svg", code=2)
    assert "--open" in done.stderr


@pytest.mark.nightly
def test_blocks_are_drawn_one_by_one_when_asked_for(folder, gradscope):
    blocks = "*[nn.Sequential(nn.Linear(4, 4)) for _ in range(3)]"
    (folder / "deep.py").write_text(MODEL.replace("nn.ReLU()", blocks))
    gradscope(folder, "inspect", "deep.py", "--save", "deep.gradscope", "-o", "report.txt")
    dot = ("graph", "deep.gradscope", "--output-format", "dot")
    assert gradscope(folder, *dot).stdout.count("Addmm") == 3
    assert gradscope(folder, *dot, "--unfold").stdout.count("Addmm") == 5
