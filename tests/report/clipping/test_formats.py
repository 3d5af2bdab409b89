"""The report on clipping in every format, of a target and of a run."""

import io
import json
import math
import re
from importlib.resources import files

import jsonschema
import pytest
import torch
from rich.console import Console
from torch import nn

from gradscope.analysis.view import ViewOptions
from gradscope.report.render import render_clip_report
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from gradscope.target.options import ClipOptions
from tests.rules.clipping.clipped_run import healthy_loop, trained
from tests.training.looping import watched

SCHEMA = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def rendered(report, output_format="full", width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return render_clip_report(report, output_format, ViewOptions(), console)


def report_of(recording):
    return Report.from_recording(recording, judge(recording))


def of_target(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 3))
    batch = torch.randint(20, (8, 3)), torch.randint(3, (8,))

    def loss_fn(model, batch):
        return nn.functional.cross_entropy(model(batch[0]) * 30, batch[1])

    return report_of(
        watched(model, None, loss_fn, batch=batch, steps=6, clipping=ClipOptions(**options))
    )


def broken():
    run, weights, optimizer = trained()
    for size in (1.0, math.nan, math.inf, 0.0):
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.clip(weights, 1.0)
        run.step(optimizer)
    return report_of(run.recording())


REPORTS = {
    "auto": of_target,
    "norm": lambda: of_target(max_norm=0.5),
    "inf": lambda: of_target(max_norm=0.5, norm_type=math.inf),
    "value": lambda: of_target(value=0.01),
    "per tensor": lambda: of_target(max_norm=0.1, per_tensor=True),
    "adaptive": lambda: of_target(adaptive_ratio=0.02),
    "run": lambda: report_of(healthy_loop(steps=30, max_norm=0.01).recording()),
    "broken": broken,
}


@pytest.fixture(scope="module", params=REPORTS.values(), ids=REPORTS)
def report(request):
    return request.param()


def test_json_holds_to_the_schema(report):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(rendered(report, "json"), parse_constant=refuse)
    VALIDATOR.validate(found)
    (series,) = found["clipping"]["series"]
    assert series["measured"] == len(series["points"]["norm"])
    assert series["cut"] <= series["measured"] - len(series["nonfinite"])


def test_json_lines_hold_the_same(report):
    lines = [json.loads(line) for line in rendered(report, "jsonl").splitlines()]
    (clipping,) = [line for line in lines if line.pop("kind") == "clipping"]
    assert clipping == json.loads(rendered(report, "json"))["clipping"]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_text_keeps_to_the_width(report, width):
    text = rendered(report, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "nan" not in re.sub(r"NaN", "", text)


def test_text_of_a_narrow_encoding_is_ascii(report):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=stream, width=100, color_system=None)
    assert render_clip_report(report, "full", ViewOptions(), console).isascii()


def test_every_line_of_the_concise_report_names_a_place(report):
    *lines, last = [
        line for line in rendered(report, "concise").splitlines() if not line.startswith("next: ")
    ]
    assert lines
    assert all(re.match(r"[^:]+(:\d+)*: ", line) for line in lines)
    assert "measured" in last


def test_markdown_tables_are_whole(report):
    text = rendered(report, "markdown")
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in rows}) <= 1
    assert text.startswith("## gradscope clip-report: ")


@pytest.mark.parametrize("output_format", ["github", "gitlab", "junit", "sarif"])
def test_formats_of_ci_hold_the_findings(report, output_format):
    text = rendered(report, output_format)
    rules = {finding.rule for finding in report.findings if finding.rule.startswith("GS4")}
    assert all(rule in text for rule in rules)


def test_embedding_that_dominates_is_told_at_a_glance():
    text = rendered(of_target(max_norm=0.5))
    section = json.loads(rendered(of_target(max_norm=0.5), "json"))["clipping"]["series"][0]
    top = section["parameters"][0]
    assert f"`{top['parameter']}` alone contributes {100 * top['share']:.0f} %" in text
