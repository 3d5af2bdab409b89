"""Recordings of runs whose captured steps hold given evidence, made without torch."""

from dataclasses import replace

from gradscope.recording.records import (
    CapturedStep,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
)
from gradscope.rules.context import RuleContext
from tests.rules.clipping.clipped_run import ClippedRun

_NODE = NodeRecord(
    index=0,
    graph=0,
    operation="SoftmaxBackward0",
    kind="operation",
    depth=1,
    sequence=0,
    module_call=0,
    site=None,
    outputs=(None,),
    parameter=None,
)
_CALL = ModuleCallRecord(
    index=0, graph=0, module=0, call=0, parent=None, site=None, inputs=(), outputs=()
)


def module(index, path, class_name, parent):
    return ModuleRecord(
        index=index,
        path=path,
        aliases=(),
        class_name=class_name,
        parent=parent,
        in_model=True,
        training=True,
    )


MODEL = (module(0, "model", "Model", None),)


def with_captured(steps, modules=MODEL):
    """A run whose captured steps have a record each, of the one node of the first module."""
    run = ClippedRun()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    run.backward(weights)
    run.step(optimizer)
    recording = run.recording()
    own = replace(recording, modules=modules, nodes=(_NODE,), calls=(_CALL,))
    captured = tuple(
        CapturedStep(step=step, order=0, recording=replace(own, evidence=(record,)))
        for step, record in steps
    )
    return replace(recording, captured_steps=captured)


def found_by(kind, recording, *, reason=False, **thresholds):
    """What a rule finds, or why it cannot judge."""
    context, rule = RuleContext(recording), kind(**thresholds)
    return rule.skip_reason(context) if reason else tuple(rule.check(context))
