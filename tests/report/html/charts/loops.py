"""Training runs whose every number is given, step by step."""

import math
from dataclasses import replace

from hypothesis import strategies as st

from gradscope.recording.finding import Finding, Verdict
from gradscope.recording.records import ParameterStat
from gradscope.session.report import Report
from tests.report.run.conftest import gradient
from tests.rules.accumulation.runs import Run

NUMBERS = st.one_of(
    st.floats(min_value=0, allow_infinity=True),
    st.sampled_from((0.0, 5e-324, 1e-60, 1.0, 1e200, math.inf, math.nan)),
)
NORMS = st.one_of(st.none(), NUMBERS)


def loop(losses, norms=(), *, optimizers=1, updates=(), rates=()):
    """A run of one step a loss, by optimizers in turn, each of a model of two parameters.

    Args:
        losses: By step.
        norms: By step, of each of the two parameters of the step's optimizer; None is no gradient.
        optimizers: That take turns.
        updates: By step, norms of their changes; None is not measured.
        rates: Learning rates by step.
    """
    run = Run()
    models = [run.model(f"model{position}", 2) for position in range(optimizers)]
    held = [
        run.optimizer(model, "SGD", line=3 + position, name=f"opt{position}")
        for position, model in enumerate(models)
    ]
    stats = []
    for step, loss in enumerate(losses):
        position = step % optimizers
        of_step = norms[step] if norms else (1.0, 2.0)
        run.zero(held[position], line=9)
        run.backward(models[position], line=10, loss=loss, rows=4)
        known = [norm for norm in of_step if norm is not None]
        total = math.nan if any(map(math.isnan, known)) else math.hypot(*known)
        numbers = {"norm": total} | ({"lr": rates[step]} if rates else {})
        run.step(held[position], line=11, **numbers)
        stats += [
            ParameterStat(
                step=step,
                parameter=parameter,
                reach="none" if norm is None else "gradient",
                gradient=None if norm is None else gradient(norm),
                reason="it had no gradient" if norm is None else None,
                weight_norm=10.0,
                update_norm=updates[step] if updates else None,
            )
            for parameter, norm in zip(models[position], of_step, strict=True)
        ]
    return replace(run.recording(), parameter_stats=tuple(stats))


def finding(**given):
    """A finding of which nothing else is of interest."""
    values = {
        "rule": "GS107",
        "name": "gradient-spike",
        "severity": "warning",
        "message": "the gradient of a step is large",
        "location": None,
        "remedy": "clip it",
        "fingerprint": "0",
    }
    return Finding(**(values | given))


def report_of(recording, *findings):
    """The report of a run in which something was found."""
    verdict = Verdict(findings=findings, ran=("GS107",), skipped=())
    return Report.from_recording(recording, verdict)
