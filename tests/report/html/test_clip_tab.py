"""The page of a report on clipping: its tabs, and what they tell."""

import math

import pytest
import torch
from lxml import html
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.report.html.clip_tab import clip_tabs, render_clip_html
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from gradscope.target.options import ClipOptions
from tests.report.conftest import build
from tests.report.html.figures import assert_valid
from tests.rules.clipping.clipped_run import ClippedRun, healthy_loop, trained
from tests.training.looping import watched


def report_of(recording):
    return Report.from_recording(recording, judge(recording))


def facts(tab):
    return [(fact.name, fact.text) for fact in tab.texts.facts]


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 3))
    batch = torch.randint(20, (8, 3)), torch.randint(3, (8,))

    def loss_fn(model, batch):
        return nn.functional.cross_entropy(model(batch[0]) * 30, batch[1])

    options = ClipOptions(max_norm=0.5, value=0.01)
    return report_of(watched(model, None, loss_fn, batch=batch, steps=6, clipping=options))


def test_a_target_is_one_tab_with_the_methods_side_by_side(target):
    (tab,) = clip_tabs(target)
    assert tab.title == target.target.name
    assert [chart.name for chart in tab.charts] == [
        "clip-steps", "clip-norms", "clip-limits", "clip-shares", "clip-parameters",
    ]  # fmt: skip
    for chart in tab.charts[:-1]:
        assert_valid(chart)
    (methods,) = tab.texts.summaries
    assert [row[0].text for row in methods.rows][:3] == [
        "global norm", "each tensor's norm", "by value",
    ]  # fmt: skip
    assert ("clip", "clip_grad_norm_(max_norm=0.5)") in facts(tab)


def test_each_line_has_a_tab_and_its_own_findings():
    run = ClippedRun()
    first, second = run.model("generator", 2), run.model("critic", 3)
    one, other = run.optimizer(first, "SGD"), run.optimizer(second, "SGD")
    for _ in range(30):
        run.backward(first)
        run.clip(first, 0.001, line=31)
        run.step(one)
        run.zero(one)
        run.backward(second)
        run.clip(second, 10.0, line=41)
        run.step(other)
        run.zero(other)
    report = report_of(run.recording())
    tabs = list(clip_tabs(report))
    assert [tab.title.rpartition(":")[2] for tab in tabs] == ["31", "41"]
    rules = [{card.rule for card in tab.texts.cards} for tab in tabs]
    assert "GS405" in rules[0] and "GS405" not in rules[1]


def test_checks_are_told(target):
    (tab,) = clip_tabs(report_of(healthy_loop().recording()))
    names = [name for name, _ in facts(tab)]
    assert "right" in names and "wrong" not in names
    run, weights, optimizer = trained()
    for size in (1.0, math.nan, math.inf):
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.clip(weights, 1.0)
        run.step(optimizer)
    (broken,) = clip_tabs(report_of(run.recording()))
    assert any(name == "wrong" and "non-finite" in text for name, text in facts(broken))
    assert any("NaN or infinite in 2 steps" in text for text in broken.texts.warnings)


def test_what_tells_nothing_of_clipping_is_refused():
    with pytest.raises(GradscopeError, match="has no clip call"):
        render_clip_html([Report.from_recording(build())])


def test_the_page_is_the_same_every_time_and_has_a_tab_for_each_recording(target):
    reports = [target, report_of(healthy_loop().recording())]
    page = render_clip_html(reports)
    assert page == render_clip_html(reports)
    assert len(html.fromstring(page).xpath("//*[@role='tab']")) == 2
