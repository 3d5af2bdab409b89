"""The depth of real models."""

from pathlib import Path

import pytest

from gradscope.report.html.charts.depth import depth
from tests.report.html.figures import assert_valid, shown, trace
from tests.rules.inspecting import report_of_file

SAMPLES = Path(__file__).parents[4] / "sample_models"


@pytest.fixture(scope="module")
def stack():
    return report_of_file(SAMPLES / "vanishing_stack.py")


def line_of(figure):
    return next(one for one in figure["data"] if one.get("mode") == "lines+markers")


def flags_of(figure):
    return {
        code: one
        for one in figure["data"]
        if one.get("mode") == "markers+text"
        for code in one["text"]
    }


def test_the_line_joins_what_every_gradient_crosses(stack):
    line = line_of(shown(depth(stack)))
    assert line["name"].startswith("Sigmoid,")
    sigmoids = [row.grad.norm for row in stack.tensors if row.operation == "SigmoidBackward0"]
    assert line["y"] == sigmoids
    assert line["x"] == sorted(line["x"])


def test_a_finding_has_a_flag_over_its_layers(stack):
    figure = shown(depth(stack))
    (finding,) = stack.findings
    flag = flags_of(figure)[finding.rule]
    (position,) = flag["x"]
    tensors = trace(figure, "tensors")
    modules = tensors["meta"]["links"]["module"]
    about = [
        x
        for x, module in zip(tensors["x"], modules, strict=True)
        if module is not None and stack.modules[module].path in finding.modules
    ]
    assert min(about) <= position <= max(about)
    assert figure["layout"]["yaxis3"]["ticktext"] == ["findings"]


@pytest.mark.nightly
def test_residual_branches_do_not_bend_the_line():
    report = report_of_file(SAMPLES / "healthy_gpt.py")
    chart = depth(report)
    line = line_of(shown(chart))
    assert line["name"].startswith("Add,")
    assert max(line["y"]) / min(line["y"]) < 10
    assert "yaxis3" not in shown(chart)["layout"]
    assert_valid(chart)


def test_parameters_behind_a_cut_have_places_without_a_gradient():
    report = report_of_file(SAMPLES / "gradient_cut.py")
    figure = shown(depth(report))
    assert figure["layout"]["yaxis2"]["ticktext"] == ["no gradient"]
    (strip,) = (one for one in figure["data"] if one.get("yaxis") == "y2")
    behind = [report.parameters[at].name for at in strip["meta"]["links"]["parameter"]]
    assert behind == ["encoder.0.weight", "encoder.0.bias", "encoder.2.weight", "encoder.2.bias"]
    first, *_ = trace(figure, "tensors")["x"]
    assert len(set(strip["x"])) == 2
    assert max(strip["x"]) < first
