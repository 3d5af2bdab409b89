"""The assertion that gradients are healthy, for every test runner."""

import math
from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import get_args

import torch
from torch import nn

import gradscope
from gradscope.analysis.view import shown_site
from gradscope.check.results import Failure, Run, skip_reason_of
from gradscope.errors import GradscopeError
from gradscope.integrations.check_events import Check, announce, columns
from gradscope.probes.snapshot import RandomStates
from gradscope.recording.finding import SEVERITIES, Finding, Severity, at_least
from gradscope.rules.flow.gradient_norm_limit import GradientNormLimit
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import WHOLE_MODEL, NormLimit, Settings
from gradscope.session.api import batches_of, inspect_target, trial_of
from gradscope.session.arguments import documented
from gradscope.session.report import Report
from gradscope.target.loading import target_from_objects
from gradscope.target.options import TargetOptions, Trial

_HIDDEN = (str(Path(gradscope.__file__).parent), str(Path(torch.__file__).parent))
"""Folders whose frames do not help the author of a test."""


class UnhealthyGradientsError(AssertionError):
    """The gradients of a model are not healthy, or there are none to judge."""

    __module__ = "gradscope.testing"  # tests import it from here, and test runners show this name

    def __init__(self, text: str, report: Report, findings: tuple[Finding, ...]) -> None:
        super().__init__(text, report, findings)  # pickle needs all of them
        self.report = report
        self.findings = findings
        """Findings that made the check fail, the worst first. Empty if nothing could be judged."""

    def __str__(self) -> str:
        return str(self.args[0])


@documented(Trial, TargetOptions, Settings)
def assert_gradients_healthy(  # noqa: PLR0913, D417 - as many things can be chosen
    model: nn.Module,
    batch: object,
    loss_fn: Callable[..., object] | str | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    max_norm: float | None = None,
    min_norm: float | None = None,
    fail_level: Severity = "error",
    grad_output: torch.Tensor | str | None = None,
    steps: int = 0,
    probe_steps: int = 3,
    eager: bool = False,
    seed: int | None = 0,
) -> Report:
    """Run one forward and backward, and fail if the gradients are not healthy.

    The model, its gradients, the optimizer and every random state are left as they were. No
    configuration file is read: a test gives the same result wherever it runs.

    Args:
        model: Any module. See `gradscope.inspect` for the arguments that both share.
        batch: The argument of the model, or a `DataLoader` or an iterator of batches. Its first
            batch is judged, the next ones are for `steps`.
        loss_fn: Function of the output and the target.
        optimizer: Its step is judged too.
        max_norm: The largest global gradient norm that passes.
        min_norm: The smallest global gradient norm that passes.
        fail_level: The mildest level that fails: `error`, `warning` or `note`.
        grad_output: The gradient to start backward from, if there is no loss.
        seed: Random seed, set before every forward: dropout then draws the same in every run of the
            test. None leaves the random state as it is.

    Returns:
        The report, for further assertions.

    Raises:
        UnhealthyGradientsError: Something at or above the fail level was found, or nothing could be
            judged: no parameter gets a gradient, backward raised, or no rule could run.
        GradscopeError: The model gives no loss, or an argument is wrong.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    try:
        settings = _settings(select, ignore, max_norm, min_norm)
        failing = _failing_levels(fail_level)
        trial = trial_of(steps=steps, probe_steps=probe_steps)
        target = target_from_objects(
            model,
            batches_of(batch),
            loss_fn,
            optimizer=optimizer,
            grad_output=grad_output,
            seed=seed,
        )
        report = inspect_target(
            target, trial=trial, eager=eager, command="check", settings=settings
        )
        _check_loss(report)
    except GradscopeError as error:
        raise _shortened(error)  # noqa: B904 - its cause is the user's exception
    findings = tuple(one for one in report.findings if one.severity in failing)
    skip_reason = skip_reason_of(Run(recording=report.recording, verdict=report.rules))
    announce(_check(report, findings, skip_reason))
    if findings or skip_reason:
        text = failure_message(report, findings, skip_reason)
        raise UnhealthyGradientsError(text, report, findings)
    return report


def _settings(
    select: str | Iterable[str],
    ignore: str | Iterable[str],
    max_norm: float | None,
    min_norm: float | None,
) -> Settings:
    for name, limit in (("max_norm", max_norm), ("min_norm", min_norm)):
        # NaN fails the comparison, too.
        if limit is not None and not (isinstance(limit, Real) and 0 <= limit < math.inf):
            raise GradscopeError(f"{name} is {limit!r}, expected a number of 0 or more")
    if max_norm is not None and min_norm is not None and min_norm > max_norm:
        raise GradscopeError(f"min_norm {min_norm!r} is larger than max_norm {max_norm!r}")
    limits = NormLimit(minimum=min_norm, maximum=max_norm)
    return Settings(
        select=parsed_selectors(select),
        ignore=parsed_selectors(ignore),
        # A limit applies whatever rules are selected.
        extend_select=() if limits == NormLimit() else (GradientNormLimit.code,),
        norm_limits={} if limits == NormLimit() else {WHOLE_MODEL: limits},
    )


def _failing_levels(fail_level: Severity) -> tuple[Severity, ...]:
    if fail_level not in SEVERITIES:
        known = ", ".join(f"`{level}`" for level in get_args(Severity))
        raise GradscopeError(f"fail_level is {fail_level!r}, expected one of {known}")
    return at_least(fail_level)


def _check_loss(report: Report) -> None:
    if report.target.synthetic_loss:
        raise GradscopeError(
            f"no loss found: {report.target.model} returns none and no scalar",
            help="give the check a loss_fn, or grad_output='ones' to start from the output",
        )


def _check(report: Report, findings: tuple[Finding, ...], skip_reason: Failure | None) -> Check:
    levels = [finding.severity for finding in report.findings]
    if skip_reason is not None and not findings:
        worst, location = skip_reason.what, ""
    elif report.findings:
        first = report.findings[0]
        worst = f"{first.rule} {first.name}"
        location = shown_site(first.location, report.target.root)
    else:
        worst = location = ""
    return Check(
        model=report.target.model,
        passed=not findings and skip_reason is None,
        parameters=report.summary.parameters,
        grad_norm=report.summary.grad_norm,
        errors=levels.count("error"),
        warnings=levels.count("warning"),
        notes=levels.count("note"),
        worst=worst,
        location=location,
    )


def failure_message(
    report: Report, findings: tuple[Finding, ...], skip_reason: Failure | None
) -> str:
    """Return the text of an `UnhealthyGradientsError`."""
    random_states = RandomStates.now()
    try:
        # rich draws random numbers while it is imported. Only tests that fail import it.
        from gradscope.report.brief import failure_text

        return failure_text(report, findings, skip_reason, columns())
    finally:
        random_states.restore()


def _shortened(error: GradscopeError) -> GradscopeError:
    """Return an error whose traceback, and that of its cause, has no gradscope frames."""
    cause = error.__cause__
    if cause is not None:
        cause.__traceback__ = _users_frames(cause.__traceback__)
    return error.with_traceback(None)


def _users_frames(traceback: TracebackType | None) -> TracebackType | None:
    if traceback is None:
        return None
    further = _users_frames(traceback.tb_next)
    if traceback.tb_frame.f_code.co_filename.startswith(_HIDDEN):
        return further
    return TracebackType(further, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
