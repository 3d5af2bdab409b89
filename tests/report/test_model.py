import math
from dataclasses import replace

import pytest

from gradscope.analysis.norms import total_norm
from gradscope.analysis.view import shown_path
from gradscope.recording.records import TensorRef, TensorStat
from gradscope.recording.store import load_recording
from gradscope.report.number_format import operation_text
from gradscope.session.report import Report


def named(report, name):
    return next(row for row in report.parameters if row.name == name)


def module(report, path):
    return next(row for row in report.modules if row.path == path)


def test_parameter_row_joins_the_first_step(report):
    row = named(report, "first.weight")
    assert (row.module, row.shape, row.dtype, row.reach) == (
        "first",
        (2, 2),
        "float32",
        "gradient",
    )
    assert row.grad.norm == 3.0
    assert row.grad.rms == 1.5
    assert row.grad_to_weight == pytest.approx(0.3)
    assert row.update_to_weight == pytest.approx(0.001)
    assert row.depth == 4


def test_ratio_to_a_zero_weight_is_not_defined(report):
    assert named(report, "first.bias").grad_to_weight is None


def test_frozen_parameter_has_a_reason_and_no_gradient(report):
    row = named(report, "head.scale.factor")
    assert (row.reach, row.grad, row.reason) == ("frozen", None, "requires_grad is False")
    assert row.grad_to_weight is None and row.update_to_weight is None and row.depth is None


def test_parameter_is_placed_at_its_first_use(report):
    assert named(report, "first.weight").site.line == 12
    assert named(report, "head.scale.factor").site is None


def test_tied_parameter_counts_in_every_module_that_holds_it_and_once_in_the_model(report):
    assert module(report, "last").grad_norm == 12.0
    assert module(report, "head").grad_norm == 12.0
    assert module(report, "").grad_norm == 13.0  # 3, 4, 12
    assert report.summary.grad_norm == 13.0
    assert module(report, "").parameters == 5
    assert module(report, "").numel == 20


def test_module_counts_its_own_parameters_apart_from_those_below(report):
    head = module(report, "head")
    assert (head.parameters, head.own_parameters) == (2, 1)
    assert (head.numel, head.own_numel) == (8, 4)
    assert (module(report, "head.scale").depth, module(report, "").depth) == (2, 0)


def test_module_without_a_gradient_has_none_not_zero(report):
    assert module(report, "act").grad_norm is None
    assert module(report, "act").weight_norm is None
    assert module(report, "head.scale").grad_norm is None
    assert module(report, "head.scale").weight_norm == 10.0


def test_gain_is_input_over_output_gradient_norm(report):
    (call,) = module(report, "act").calls
    assert (call.output_grad_norm, call.input_grad_norm, call.gain) == (8.0, 4.0, 0.5)
    (call,) = module(report, "last").calls
    assert call.gain == 4.0


def test_gain_is_none_where_the_input_has_no_gradient(report):
    (call,) = module(report, "first").calls
    assert (call.output_grad_norm, call.input_grad_norm, call.gain) == (4.0, None, None)


def with_call(recording, inputs):
    refs = tuple(TensorRef(node=node, slot=0) for node in inputs)
    call = replace(recording.calls[2], inputs=refs)
    return replace(recording, calls=(*recording.calls[:2], call, recording.calls[3]))


def test_view_and_its_base_count_once_in_a_call(recording):
    viewed = replace(recording.nodes[1], same_as=TensorRef(node=4, slot=0))
    nodes = (recording.nodes[0], viewed, *recording.nodes[2:])
    report = Report.from_recording(replace(with_call(recording, (4, 1)), nodes=nodes))
    assert module(report, "act").calls[0].input_grad_norm == 4.0


def test_parameter_as_input_of_a_call_counts_with_its_gradient(recording):
    report = Report.from_recording(with_call(recording, (2, 4)))
    assert module(report, "act").calls[0].input_grad_norm == pytest.approx(math.hypot(12, 4))


def test_call_norm_is_unknown_where_a_delivered_gradient_was_not_measured(recording):
    opaque = TensorStat(step=0, node=4, slot=0, order=3, gradient=None, reason="of an odd type")
    stats = (*recording.tensor_stats[:3], opaque)
    report = Report.from_recording(replace(recording, tensor_stats=stats))
    assert module(report, "act").calls[0].input_grad_norm is None
    assert report.summary.unmeasured_tensors == 1


def test_tensors_stand_in_the_order_of_the_forward_without_views_and_parameters(report):
    assert [(row.operation, row.module) for row in report.tensors] == [
        ("AddmmBackward0", "first"),
        ("ReluBackward0", "act"),
        ("AddmmBackward0", "last"),
        ("MseLossBackward0", None),
    ]
    assert report.summary.tensors == 4
    assert report.summary.views == 1


def test_stat_of_a_parameter_node_is_no_tensor(recording):
    hooked = TensorStat(
        step=0, node=5, slot=0, order=4, gradient=recording.tensor_stats[0].gradient, reason=None
    )
    grown = replace(recording, tensor_stats=(*recording.tensor_stats, hooked))
    assert len(Report.from_recording(grown).tensors) == 4


def test_graph_is_counted(report):
    graph = report.graph
    assert (graph.nodes, graph.edges, graph.depth, graph.leaves, graph.views) == (9, 8, 4, 4, 1)
    assert graph.operations[:2] == (("AccumulateGrad", 4), ("AddmmBackward0", 2))
    assert (graph.widest.depth, graph.widest.nodes) == (2, 3)
    assert graph.parameters_by_depth == ((2, 1), (3, 1), (4, 2))


def test_summary_counts_parameters_by_reach(report):
    summary = report.summary
    counts = (summary.parameters, summary.requires_grad, summary.reached, summary.zero)
    assert counts == (5, 4, 3, 1)
    assert (summary.none, summary.frozen) == (0, 1)
    assert (summary.numel, summary.trainable_numel) == (20, 16)
    assert (summary.loss, summary.skipped) == (1.5, 1)


def test_nonfinite_gradients_are_counted_and_reach_the_norm(hostile_report):
    summary = hostile_report.summary
    assert summary.nonfinite_parameters == 5
    assert math.isnan(summary.grad_norm)
    assert math.isnan(summary.loss)


def test_probe_holds_every_parameters_norm(report):
    (probe,) = report.probes
    assert (probe.step, probe.loss) == (1, 1.25)
    assert probe.parameters == (1.0, None, 1.0, None, None)
    assert probe.grad_norm == pytest.approx(math.sqrt(2))


def test_recording_without_a_step_makes_a_report_that_says_so(recording):
    bare = replace(
        recording, steps=(), parameter_stats=(), tensor_stats=(), nodes=(), edges=(), calls=()
    )
    report = Report.from_recording(bare)
    assert [row.reach for row in report.parameters] == ["unknown"] * 4 + ["frozen"]
    assert report.parameters[0].reason
    assert report.summary.grad_norm is None and report.summary.loss is None
    assert report.graph.widest is None and report.graph.depth == 0
    assert "5 parameters" in repr(report)


def test_saved_report_is_read_again(report, tmp_path):
    report.save(tmp_path / "a.gradscope")
    assert Report.from_recording(load_recording(tmp_path / "a.gradscope")) == report


def test_repr_names_model_loss_norm_and_extremes_in_a_few_lines(report):
    text = repr(report)
    assert len(text.splitlines()) <= 5
    for part in (
        "Net",
        "1.5",
        "13",
        "5 parameters (1 zero); 1 frozen",
        "last.weight 12",
        "last.bias 0",
    ):
        assert part in text


def test_notebook_rendering_escapes_names(hostile_report):
    html = hostile_report._repr_html_()
    assert "<script" not in html and "\x1b" not in html
    assert "&lt;Net&gt;" in html
    assert "\x1b" not in repr(hostile_report)


@pytest.mark.parametrize(
    ("norms", "total"),
    [
        ((0.0,), 0.0),
        ((3.0, 4.0), 5.0),
        ((3e200, 4e200), 5e200),
        ((3e-200, 4e-200), 5e-200),
        ((math.inf, 1.0), math.inf),
        ((math.inf, math.nan), math.nan),
    ],
)
def test_total_norm(norms, total):
    assert total_norm(norms) == pytest.approx(total, rel=1e-12, nan_ok=True)


def test_total_norm_of_nothing_is_none():
    assert total_norm([]) is None


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/user/project/model.py", "model.py"),
        ("/home/user/project/nets/a.py", "nets/a.py"),
        ("/home/user/project2/a.py", "/home/user/project2/a.py"),
        ("<stdin>", "<stdin>"),
        ("model.py", "model.py"),
    ],
)
def test_path_is_relative_where_it_lies_under_the_root(file, shown):
    assert shown_path(file, "/home/user/project") == shown


def test_made_up_loss_is_said_in_the_interpreter_and_in_notebooks(recording):
    target = replace(recording.target, synthetic_loss=True)
    report = Report.from_recording(replace(recording, target=target))
    assert "the loss is guessed" in repr(report)
    assert "the loss is guessed" in report._repr_html_()
    assert "made up" not in repr(Report.from_recording(recording))


def test_notebook_shows_modules_lines_and_why_a_gradient_is_missing(recording):
    stats = list(recording.parameter_stats)
    stats[0] = replace(stats[0], gradient=None, reach="none", reason="cut off & gone")
    html = Report.from_recording(replace(recording, parameter_stats=tuple(stats)))._repr_html_()
    for part in ("cut off &amp; gone", "1 without gradient", "model.py:12", ">module</th>"):
        assert part in html


def test_parameter_is_found_by_each_of_its_names(report):
    for row in report.parameters:
        assert all(report.parameter(name) is row for name in (row.name, *row.aliases))
    with pytest.raises(KeyError, match=r"did you mean `first\.weight`"):
        report.parameter("first.wieght")


@pytest.mark.parametrize(
    ("operation", "shown"),
    [
        ("MeanBackward1", "Mean"),
        ("SignBackward", "Sign"),
        ("BadBackward", "Bad"),
        ("TanhBackwardBackward0", "TanhBackward"),
        ("AccumulateGrad", "AccumulateGrad"),
        ("Backward", "Backward"),
    ],
)
def test_operations_are_named_as_people_know_them(operation, shown):
    assert operation_text(operation) == shown
