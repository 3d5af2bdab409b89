"""Gradient norms of layers over the steps."""

import math
from dataclasses import replace

import pytest

from gradscope.analysis.columns import Columns
from gradscope.analysis.layers import layers, module_norms
from gradscope.analysis.view import ViewOptions
from gradscope.report.documents.run_phrasing import layer_ends
from gradscope.session.report import Report
from tests.report.run.conftest import network


def drawn(recording, width=80, rows=20, **view):
    report = Report.from_recording(recording)
    columns = Columns.over(report.training_run, width)
    return layers(report, ViewOptions(**view), columns, rows)


def names(found):
    return [(row.level, row.module.name, row.module.copies) for row in found]


def test_each_layer_has_a_row_where_there_is_room():
    found = drawn(network(3, lambda step, block: 1.0 + block))
    assert names(found)[1:] == [(1, "0", 1), (1, "1", 1), (1, "2", 1)]
    assert found[-1].cells == (3.0, 3.0, 3.0)


def test_norm_of_a_module_is_that_over_its_parameters():
    found = drawn(network(2, lambda step, block: 1.0 + block + step))
    assert found[0].cells == pytest.approx(
        [math.hypot(1, 2, 3), math.hypot(2, 3, 4)],
    )


def test_repeated_layers_fold_where_there_is_no_room():
    recording = network(2, lambda step, block: 1.0 + block, blocks=40)
    found = drawn(recording)
    assert len(found) <= 20
    assert found[-1].module.copies == 40
    assert found[-1].cells == (40.0, 40.0), "the largest of them"


def test_a_layer_that_breaks_is_not_folded_away():
    def norm(step, block):
        return math.nan if block == 17 and step == 1 else 1.0

    found = drawn(network(3, norm, blocks=40))
    assert [row.module.name for row in found][-3:] == ["[0-16]", "17", "[18-39]"]
    assert math.isnan(found[-2].cells[1])


def test_a_layer_that_loses_its_gradient_is_not_folded_away():
    def norm(step, block):
        return None if block == 5 and step >= 2 else 1.0

    found = drawn(network(4, norm, blocks=40))
    assert [row.module.name for row in found][-3:] == ["[0-4]", "5", "[6-39]"]
    assert found[-2].cells == (1.0, 1.0, None, None)


def test_a_module_alone_can_be_asked_for():
    found = drawn(network(2, lambda step, block: 1.0 + block), module="net.blocks.1")
    assert [(row.module.rows[0].path, row.cells) for row in found] == [("net.blocks.1", (2.0, 2.0))]


def test_depth_folds_what_lies_deeper():
    found = drawn(network(2, lambda step, block: 1.0), depth=0)
    assert len(found) == 1


def test_many_steps_show_their_largest_norm():
    found = drawn(network(100, lambda step, block: 50.0 if step == 61 else 1.0), width=10)
    assert found[-1].cells == (1.0,) * 6 + (50.0,) + (1.0,) * 3


def test_steps_that_were_not_measured_are_no_gaps():
    recording = network(6, lambda step, block: 1.0 + step)
    kept = tuple(stat for stat in recording.parameter_stats if stat.step % 2 == 0)
    found = drawn(replace(recording, parameter_stats=kept))
    assert found[-1].cells == (1.0, 1.0, 3.0, 3.0, 5.0, None)


def test_norms_of_all_modules():
    report = Report.from_recording(network(2, lambda step, block: 1.0 + block))
    columns = Columns.over(report.training_run, 100)
    found = {row.path: norms for row, norms in module_norms(report, columns)}
    assert found["net.blocks.2"] == (3.0, 3.0)
    assert found["net"] == found["net.blocks"]


def test_tied_weights_count_wherever_they_are_used():
    recording = network(2, lambda step, block: 1.0 + block)
    tied = replace(recording.parameters[2], aliases=("net.blocks.0.weight",))
    found = drawn(replace(recording, parameters=(*recording.parameters[:2], tied)))
    assert found[1].cells == pytest.approx([math.hypot(1, 3)] * 2)
    assert found[0].cells == pytest.approx([math.hypot(1, 2, 3)] * 2), "each tensor once"


def test_layers_without_a_gradient_are_told_from_frozen_ones():
    recording = network(2, lambda step, block: 1.0 if block else None)
    assert layer_ends(drawn(recording)[1]) == "no gradient"
    measured = tuple(stat for stat in recording.parameter_stats if stat.parameter)
    assert layer_ends(drawn(replace(recording, parameter_stats=measured))[1]) == "—"
    frozen = replace(recording.parameters[0], requires_grad=False)
    parameters = (frozen, *recording.parameters[1:])
    assert layer_ends(drawn(replace(recording, parameters=parameters))[1]) == "frozen"
