"""Contributions to the norm as it is drawn, against the contributions themselves."""

import pytest

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.report.html.charts.clip_shares import module_of, share_chart, share_table
from gradscope.session.report import Report
from tests.report.html.figures import assert_valid, plain, shown
from tests.rules.clipping.clipped_run import ClippedRun


@pytest.fixture(scope="module")
def report():
    run = ClippedRun()
    weights = run.model("model", 9)
    optimizer = run.optimizer(weights, "SGD")
    for turn in range(4):
        run.zero(optimizer)
        for position, weight in enumerate(weights):
            run.backward([weight], size=1.0 + position + turn)
        run.clip(weights, 1.0)
        run.step(optimizer)
    return Report.from_recording(run.recording())


@pytest.fixture(scope="module")
def section(report):
    return Clipping.of(report.recording).sections[0]


def test_a_bar_is_as_long_as_its_modules_share(report, section):
    chart = share_chart(section, report)
    figure = shown(chart)
    lengths = {}
    for one in figure["data"][:-1]:
        for row, share in zip(one["y"], one["x"], strict=True):
            lengths[row] = lengths.get(row, 0.0) + share
    modules = section.contributions.modules
    assert list(lengths.values()) == pytest.approx([module.share for module in modules])
    assert figure["data"][-1]["x"] == [module.largest for module in modules]
    assert sum(lengths.values()) == pytest.approx(1.0)
    assert_valid(chart)


def test_pieces_select_their_parameter_and_its_module(report, section):
    rows = {row.index: row for row in report.parameters}
    seen = set()
    for one in shown(share_chart(section, report))["data"][:-1]:
        links = one["meta"]["links"]
        for module, parameter in zip(links["module"], links["parameter"], strict=True):
            if parameter is not None:
                seen.add(parameter)
                assert report.modules[module].path == rows[parameter].module
    assert seen


def test_every_parameter_is_counted_to_one_module(section):
    found = section.contributions
    names = {module.name for module in found.modules}
    by_module = dict.fromkeys(names, 0.0)
    for one in found.parameters:
        by_module[module_of(one, found)] += one.share
    assert by_module == pytest.approx({module.name: module.share for module in found.modules})


def test_the_table_holds_every_parameter(report, section):
    columns = {
        one["title"]: one["values"]
        for one in plain(share_table(section, report).content)["columns"]
    }
    rows = section.contributions.parameters
    assert columns["parameter"] == [one.name for one in rows]
    assert columns["share"] == [one.share for one in rows]
    assert columns["norm before"] == [one.before for one in rows]
    assert columns["norm after"] == [one.after for one in rows]
