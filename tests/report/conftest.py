"""A small recording made by hand: its numbers are chosen so that the report's can be told."""

from dataclasses import replace

import pytest

from gradscope.recording.records import (
    EdgeRecord,
    EventRecord,
    GradientStat,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
    ParameterRecord,
    ParameterStat,
    Shape,
    Site,
    Skipped,
    StepRecord,
    TensorRef,
    TensorStat,
)
from gradscope.session.report import Report
from tests import records

ROOT = "/home/user/project"
MATRIX = Shape(dims=(2, 2), dtype="float32")
ROWS = Shape(dims=(8, 2), dtype="float32")
SCALAR = Shape(dims=(), dtype="float32")


def gradient(norm, **changes):
    values = {
        "numel": 4,
        "norm": norm,
        "absolute_maximum": norm,
        "zero_share": 0.0,
        "nonfinite": 0,
        "sampled": False,
        "lowest_exponent": -3,
        "magnitudes": (1, 0, 3),
    }
    return GradientStat(**(values | changes))


def module(index, path, class_name, **changes):
    values = {"aliases": (), "parent": 0 if index else None, "in_model": True, "training": True}
    return ModuleRecord(index=index, path=path, class_name=class_name, **(values | changes))


def parameter(index, name, owner, **changes):
    values = {
        "aliases": (),
        "shape": MATRIX,
        "device": "cpu",
        "numel": 4,
        "requires_grad": True,
        "optimizer_group": 0,
    }
    return ParameterRecord(index=index, name=name, module=owner, **(values | changes))


def node(index, operation, depth, sequence=None, **changes):
    values = {
        "graph": 0,
        "kind": "operation",
        "module_call": None,
        "site": None,
        "outputs": (ROWS,),
        "parameter": None,
    }
    return NodeRecord(
        index=index, operation=operation, depth=depth, sequence=sequence, **(values | changes)
    )


def leaf(index, depth, parameter):
    return node(
        index, "AccumulateGrad", depth, kind="parameter", outputs=(MATRIX,), parameter=parameter
    )


def call(index, owner, number=0, inputs=(), outputs=(), **changes):
    values = {"graph": 0, "parent": None if index == 0 else 0, "site": 0}
    return ModuleCallRecord(
        index=index,
        module=owner,
        call=number,
        inputs=tuple(TensorRef(node=position, slot=0) for position in inputs),
        outputs=tuple(TensorRef(node=position, slot=0) for position in outputs),
        **(values | changes),
    )


def stat(index, grad, *, step=0, reach="gradient", **changes):
    values = {"reason": None, "weight_norm": 10.0, "update_norm": 0.01}
    return ParameterStat(
        step=step, parameter=index, reach=reach, gradient=grad, **(values | changes)
    )


def tensor(position, order, norm):
    return TensorStat(
        step=0, node=position, slot=0, order=order, gradient=gradient(norm), reason=None
    )


def build():
    """The net `last(relu(first(x)))`, `last.weight` tied to `head.weight`, and a frozen scale."""
    return records.recording(
        target=records.target(
            batch="float32[8, 2], float32[8, 2]",
            loss="loss_fn(output, batch)",
            optimizer="SGD(lr=0.1)",
            seed=0,
            root=ROOT,
        ),
        modules=(
            module(0, "", "Net"),
            module(1, "first", "Linear"),
            module(2, "act", "ReLU"),
            module(3, "last", "Linear", aliases=("again",)),
            module(4, "head", "Head"),
            module(5, "head.scale", "Scale", parent=4),
        ),
        parameters=(
            parameter(0, "first.weight", 1),
            parameter(1, "first.bias", 1),
            parameter(2, "last.weight", 3, aliases=("again.weight", "head.weight")),
            parameter(3, "last.bias", 3, aliases=("again.bias",)),
            parameter(4, "head.scale.factor", 5, requires_grad=False, optimizer_group=None),
        ),
        sites=(
            Site(file=f"{ROOT}/model.py", line=12, function="forward", source="x = self.first(x)"),
            Site(file="/opt/elsewhere/act.py", line=3, function="relu", source="return relu(x)"),
            Site(file=f"{ROOT}/model.py", line=20, function="loss_fn", source="mse_loss(a, b)"),
        ),
        calls=(
            call(0, 0, outputs=(1,)),
            call(1, 1, outputs=(4,)),
            call(2, 2, inputs=(4,), outputs=(3,)),
            call(3, 3, inputs=(3,), outputs=(1,)),
        ),
        nodes=(
            node(0, "MseLossBackward0", 0, 5, site=2, outputs=(SCALAR,)),
            node(1, "AddmmBackward0", 1, 4, module_call=3, site=0),
            node(
                2,
                "TBackward0",
                2,
                3,
                kind="view",
                module_call=3,
                site=0,
                outputs=(MATRIX,),
                same_as=TensorRef(node=7, slot=0),
            ),
            node(3, "ReluBackward0", 2, 2, module_call=2, site=1),
            node(4, "AddmmBackward0", 3, 1, module_call=1, site=0),
            leaf(5, 4, 0),
            leaf(6, 4, 1),
            leaf(7, 3, 2),
            leaf(8, 2, 3),
        ),
        edges=tuple(
            EdgeRecord(source=source, target=target, slot=0)
            for source, target in [
                (0, 1),
                (1, 8),
                (1, 3),
                (1, 2),
                (2, 7),
                (3, 4),
                (4, 6),
                (4, 5),
            ]
        ),
        steps=(
            StepRecord(index=0, kind="step", graph=0, loss=1.5, optimizer="SGD(lr=0.1)"),
            StepRecord(index=1, kind="probe", graph=None, loss=1.25, optimizer="SGD(lr=0.1)"),
        ),
        events=(
            EventRecord(
                step=0, order=0, kind="backward", seconds=0.5, site=2, numbers=(("loss", 1.5),)
            ),
        ),
        parameter_stats=(
            stat(0, gradient(3.0)),
            stat(1, gradient(4.0), weight_norm=0.0),
            stat(2, gradient(12.0)),
            stat(3, gradient(0.0, zero_share=1.0), reach="zero"),
            stat(4, None, reach="frozen", reason="requires_grad is False", update_norm=None),
            stat(0, gradient(1.0), step=1),
            stat(2, gradient(1.0), step=1),
        ),
        tensor_stats=(
            tensor(0, 0, 1.0),
            tensor(1, 1, 2.0),
            tensor(3, 2, 8.0),
            tensor(4, 3, 4.0),
        ),
        skipped=(Skipped(what="update of head.scale.factor", reason="it is in no group"),),
    )


HOSTILE_NAMES = (
    "[/x]",
    "<script>alert(1)</script>",
    "\x1b[31mred",
    "a\nb",
    "`tick`|pipe|",
    "deep." * 40 + "weight",
    "../../etc/@everyone",
    "\u202eright to left",
    "half\udc80surrogate",
)


def build_hostile():
    """The same with names that try to break out of a format, and every number that is none."""
    recording = build()
    owners = tuple(
        module(6 + position, f"m{name}", name) for position, name in enumerate(HOSTILE_NAMES)
    )
    parameters = tuple(
        parameter(5 + position, f"m{name}.weight", 6 + position, aliases=(name,))
        for position, name in enumerate(HOSTILE_NAMES)
    )
    norms = [float("nan"), float("inf"), 1e300, 5e-324]
    stats = tuple(
        stat(
            row.index,
            gradient(norms[position % 4], nonfinite=int(position % 4 < 2)),
            weight_norm=norms[position % 3],
        )
        for position, row in enumerate(parameters)
    )
    site = Site(file="/tmp/<b>|`x`\n.py", line=1, function="<script>", source="|`<b>`\x1b[0m")
    return replace(
        recording,
        target=replace(recording.target, model="<Net>|`", name="\x1b[1mbold.py"),
        modules=recording.modules + owners,
        parameters=recording.parameters + parameters,
        parameter_stats=recording.parameter_stats + stats,
        sites=(site, *recording.sites[1:]),
        steps=(replace(recording.steps[0], loss=float("nan")), *recording.steps[1:]),
        skipped=(Skipped(what="<img src=x>", reason="a | b\nc `d` <i>"),) * 12,
    )


@pytest.fixture
def recording():
    return build()


@pytest.fixture
def report(recording):
    return Report.from_recording(recording)


@pytest.fixture
def hostile_recording():
    return build_hostile()


@pytest.fixture
def hostile_report(hostile_recording):
    return Report.from_recording(hostile_recording)
