import math
from dataclasses import replace

import pytest

from gradscope.analysis.selection import (
    modules_below,
    parameters_below,
    select_parameters,
    select_tensors,
    tensors_below,
)
from gradscope.analysis.view import ViewOptions
from gradscope.errors import GradscopeError
from gradscope.recording.records import Shape
from gradscope.session.report import Report


def with_norms(recording, norms):
    """The recording with this gradient norm for each of its first parameters; None for none."""
    stats = []
    for stat, norm in zip(recording.parameter_stats, norms, strict=False):
        gradient = (
            norm
            if norm is None
            else replace(
                recording.parameter_stats[0].gradient,
                norm=norm,
                absolute_maximum=norm,
                nonfinite=int(not math.isfinite(norm)),
            )
        )
        reach = "none" if norm is None else "gradient" if norm else "zero"
        stats.append(replace(stat, gradient=gradient, reach=reach))
    return Report.from_recording(replace(recording, parameter_stats=tuple(stats)))


def names(groups):
    return {group.kind: [row.name for row in group.rows] for group in groups}


def test_extremes_are_ranked_by_norm_and_zero_is_apart(report):
    assert names(select_parameters(report, ViewOptions(top=1))) == {
        "zero": ["last.bias"],
        "largest": ["last.weight"],
        "smallest": ["first.weight"],
    }


def test_no_row_is_in_two_groups(report):
    assert names(select_parameters(report, ViewOptions(top=5))) == {
        "zero": ["last.bias"],
        "largest": ["last.weight", "first.bias"],
        "smallest": ["first.weight"],
    }


def test_broken_and_missing_gradients_come_first_and_frozen_ones_nowhere(recording):
    report = with_norms(recording, [math.nan, None, math.inf, 2.0])
    groups = select_parameters(report, ViewOptions())
    assert [group.kind for group in groups] == ["non-finite", "none", "largest"]
    assert names(groups) == {
        "non-finite": ["last.weight", "first.weight"],
        "none": ["first.bias"],
        "largest": ["last.bias"],
    }


def test_what_is_left_out_is_counted(recording):
    report = with_norms(recording, [math.nan, math.nan, math.inf, 2.0])
    (group, _) = select_parameters(report, ViewOptions(top=1))
    assert (len(group.rows), group.total, group.folded) == (1, 3, 2)


def test_sort_by_ratio_ranks_the_extremes_by_gradient_over_weight(recording):
    stats = list(recording.parameter_stats)
    stats[0] = replace(stats[0], weight_norm=0.001)
    report = Report.from_recording(replace(recording, parameter_stats=tuple(stats)))
    groups = names(select_parameters(report, ViewOptions(top=1, sort="ratio")))
    # first.bias has a zero weight, and so no ratio.
    assert groups["largest"] == ["first.weight"]
    assert groups["smallest"] == ["last.weight"]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("order", [0, 1, 2, 3, 4]),
        ("name", [1, 0, 4, 3, 2]),
        ("norm", [2, 1, 0, 3, 4]),
        ("ratio", [2, 0, 3, 1, 4]),
        ("depth", [3, 2, 0, 1, 4]),
    ],
)
def test_parameters_are_sorted(report, sort, order):
    rows = parameters_below(report, ViewOptions(sort=sort))
    assert [row.index for row in rows] == order


def test_sort_by_norm_has_nan_first_and_none_last(recording):
    report = with_norms(recording, [1.0, None, math.nan, math.inf])
    rows = parameters_below(report, ViewOptions(sort="norm"))
    assert [row.index for row in rows][:3] == [2, 3, 0]


@pytest.mark.parametrize(
    ("sort", "norms"),
    [
        ("order", [4.0, 8.0, 2.0, 1.0]),
        ("norm", [8.0, 4.0, 2.0, 1.0]),
        ("depth", [1.0, 2.0, 8.0, 4.0]),
        ("name", [1.0, 8.0, 4.0, 2.0]),
    ],
)
def test_tensors_are_sorted(report, sort, norms):
    rows = tensors_below(report, ViewOptions(sort=sort))
    assert [row.grad.norm for row in rows] == norms


def test_module_keeps_what_lies_below_it_tied_parameters_included(report):
    def below(path):
        return [row.name for row in parameters_below(report, ViewOptions(module=path))]

    assert below("head") == ["last.weight", "head.scale.factor"]
    assert below("head.scale") == ["head.scale.factor"]
    assert below("again") == below("last") == ["last.weight", "last.bias"]
    rows = tensors_below(report, ViewOptions(module="act"))
    assert [row.operation for row in rows] == ["ReluBackward0"]


def test_modules_below_one_begin_with_it(report):
    rows = modules_below(report, ViewOptions(module="head"))
    assert [row.path for row in rows] == ["head", "head.scale"]
    assert modules_below(report, ViewOptions()) == report.modules
    assert [row.path for row in modules_below(report, ViewOptions(module="again"))] == ["last"]


def test_module_that_is_not_there_is_told_with_the_nearest(report):
    with pytest.raises(GradscopeError, match="no module `haed`") as raised:
        select_tensors(report, ViewOptions(module="haed"))
    assert raised.value.help == "did you mean `head`?"


def test_gradient_without_numbers_is_unmeasured_and_not_missing(recording):
    stats, tensors = list(recording.parameter_stats), list(recording.tensor_stats)
    stats[0] = replace(stats[0], gradient=None, reason="of an odd type")
    stats[1] = replace(stats[1], gradient=None, reach="none", reason="unused")
    tensors[0] = replace(tensors[0], gradient=None, reason="of an odd type")
    tensors[1] = replace(tensors[1], gradient=None, order=None, reason="never delivered")
    changed = replace(recording, parameter_stats=tuple(stats), tensor_stats=tuple(tensors))
    report = Report.from_recording(changed)
    groups = names(select_parameters(report, ViewOptions()))
    assert groups["unmeasured"] == ["first.weight"]
    assert groups["none"] == ["first.bias"]
    kinds = {
        group.kind: [row.node for row in group.rows]
        for group in select_tensors(report, ViewOptions())
    }
    assert (kinds["unmeasured"], kinds["none"]) == ([0], [1])


def test_loss_itself_is_no_extreme(report):
    rows = [row for group in select_tensors(report, ViewOptions()) for row in group.rows]
    assert [row.node for row in rows] == [3, 4, 1]


def test_non_finite_tensors_are_in_the_order_of_backward(recording):
    stats = tuple(
        replace(stat, gradient=replace(stat.gradient, nonfinite=1, norm=math.nan))
        for stat in recording.tensor_stats
    )
    report = Report.from_recording(replace(recording, tensor_stats=stats))
    (group,) = select_tensors(report, ViewOptions())
    assert [row.order for row in group.rows] == [0, 1, 2, 3]
    assert group.note == "first to last in backward"


def test_scalars_and_views_of_parameters_are_no_extremes(recording):
    nodes, stats = list(recording.nodes), list(recording.tensor_stats)
    # The transpose of a weight, whose gradient is measured of its own.
    view = next(node for node in nodes if node.operation == "TBackward0")
    nodes[view.index] = replace(view, same_as=None)
    stats.append(replace(stats[1], node=view.index, order=9))
    scalar = next(node for node in nodes if node.operation == "ReluBackward0")
    nodes[scalar.index] = replace(scalar, outputs=(Shape(dims=(1, 1), dtype="float32"),))
    report = Report.from_recording(
        replace(recording, nodes=tuple(nodes), tensor_stats=tuple(stats))
    )
    shown = {row.operation for group in select_tensors(report, ViewOptions()) for row in group.rows}
    assert shown == {"AddmmBackward0"}
    assert {"TBackward0", "ReluBackward0"} <= {row.operation for row in report.tensors}


@pytest.mark.parametrize(("sort", "reverse"), [("name", False), ("norm", True)])
def test_extremes_are_sorted_as_asked(report, sort, reverse):
    (group,) = [
        group
        for group in select_parameters(report, ViewOptions(top=3, sort=sort))
        if group.kind == "largest"
    ]
    keys = [row.name if sort == "name" else row.grad.norm for row in group.rows]
    assert len(keys) > 1
    assert keys == sorted(keys, reverse=reverse)
