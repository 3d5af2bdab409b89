"""GS113: gradient norms above the limits that the user has set."""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from gradscope.analysis.norms import norm_of_norms
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.norm_table import norms_of
from gradscope.recording.records import ModuleRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.clips import UnclippedNorms
from gradscope.rules.measurement import Measure, Side
from gradscope.rules.rule import Rule
from gradscope.rules.settings import WHOLE_MODEL, NormLimit, matches

_CAUSES = ("GS101", "GS103", "GS104", "GS108")
"""Rules that find why a gradient is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNormLimit(Rule):
    """A gradient norm is outside the configured limits.

    What it finds:
        A global gradient norm above `--max-grad-norm` or below `--min-grad-norm`, and modules whose
        norm is outside their configured limits.

    Why it matters:
        If the usual size of a model's gradients is known, a fixed limit is the simplest alarm: it
        reports changes that no other rule can detect.

    How it is measured:
        The Euclidean norm over all parameters, or over those of a module and its submodules. It is
        measured before clipping, in the judged step and in the steps that `--steps` adds before it.
        NaN and infinity exceed every limit. Without a limit the rule does not run.

    How to fix it:
        Check what has changed since the limit was set, or set another limit.

    When it may be wrong:
        The norm depends on the batch, on whether the loss is a sum or a mean, and on the step.
        Leave room for that when you choose a limit.

    Source:
        None: the user sets the limits.
    """

    code: ClassVar[str] = "GS113"
    name: ClassVar[str] = "gradient-norm-limit"
    level: ClassVar[Severity] = "error"
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure(number="norm", limit="maximum"),
        Measure(number="norm", limit="minimum", worse="lower"),
    )

    def is_asked_for(self, context: RuleContext) -> bool:
        """Return whether any limit is set."""
        return bool(context.norm_limits)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why norms cannot be compared, None where they can."""
        return None if _norms(context) else "no parameter has a gradient"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every limit that a norm exceeds."""
        steps = _norms(context)
        for pattern, limit in context.norm_limits.items():
            measured = list(_measured(context, steps, pattern))
            for one in measured:
                subject = "" if one.module is None else one.module.path
                for value, side in _sides(limit):
                    if value is not None:
                        context.measured(
                            self.code,
                            "norm",
                            one.norm,
                            value,
                            fires=side,
                            subject=subject,
                            step=one.step,
                        )
            above = [
                one
                for one in measured
                # NaN fails every comparison, and is above every maximum.
                if limit.maximum is not None and not one.norm <= limit.maximum
            ]
            below = [
                one for one in measured if limit.minimum is not None and one.norm < limit.minimum
            ]
            if above:
                worst = max(above, key=lambda one: _order(one.norm))
                yield self._finding(
                    context, f"above the limit of {short(limit.maximum, 6)}", worst, above
                )
            if below:
                worst = min(below, key=lambda one: one.norm)
                yield self._finding(
                    context, f"below the limit of {short(limit.minimum, 6)}", worst, below
                )

    def _finding(
        self, context: RuleContext, verdict: str, worst: "_Measured", beyond: "list[_Measured]"
    ) -> Finding:
        is_above = verdict.startswith("above")
        limit = context.norm_limits[worst.pattern]
        extreme, choose = ("largest", max) if is_above else ("smallest", min)
        position = choose(worst.norms, key=lambda index: _order(worst.norms[index]))
        record = context.recording.parameters[position]
        share = (
            f"; the {extreme} of one parameter is {short(worst.norms[position])} in {record.name}"
        )
        module = worst.module
        what = "the global gradient norm" if module is None else f"the norm of {module.path}"
        modules = {one.module.index for one in beyond if one.module is not None}
        others = _others(len(modules) - 1)
        norm = f"{short(worst.norm)}{_when(context, worst.step)}"
        return self.finding(
            context,
            message=f"{what} is {norm}, {verdict}{others}{share}",
            remedy="check what has changed since the limit was set, or set another limit",
            site=record.site if module is None or module.site is None else module.site,
            parameters=dict.fromkeys(index for one in beyond for index in one.norms),
            evidence={
                "norm": worst.norm,
                "maximum" if is_above else "minimum": limit.maximum if is_above else limit.minimum,
                f"{extreme}_parameter": record.name,
                f"{extreme}_norm": worst.norms[position],
            },
            count=max(len(modules), 1),
            # The worst parameter, and so its line, may be another one in the next run.
            cause=f"{verdict.partition(' ')[0]} the limit of {worst.pattern}",
            # Another rule knows the operation that makes a gradient non-finite.
            caused_by=() if math.isfinite(worst.norm) else _CAUSES,
            step=worst.step,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The norm of a module, or of the whole model, in one step."""

    pattern: str
    step: int
    module: ModuleRecord | None
    norms: Mapping[int, float]
    """Gradient norms of the module's parameters, submodules included."""

    @property
    def norm(self) -> float:
        return norm_of_norms(self.norms.values())


def _norms(context: RuleContext) -> dict[int, dict[int, float]]:
    """Return the gradient norms of parameters, by the steps up to the judged one.

    Of a run they are those before its clips: these hide what a limit is there to find.
    """
    kinds = {step.index: step.kind for step in context.recording.steps}
    found: dict[int, dict[int, float]] = {}
    norms = norms_of(context.recording)
    for step, parameter, norm in zip(norms.steps, norms.parameters, norms.gradients, strict=True):
        # A negative number stands for a norm that was not measured; NaN is one that was.
        if not norm < 0 and kinds[step] != "probe":
            found.setdefault(step, {})[parameter] = norm
    if not context.is_run:
        return found
    unclipped = context.shared(UnclippedNorms)
    return {step: unclipped.before(step, of_step) for step, of_step in found.items()}


def _measured(
    context: RuleContext, steps: Mapping[int, Mapping[int, float]], pattern: str
) -> Iterator[_Measured]:
    for module, parameters in _groups(context, pattern):
        for step, norms in steps.items():
            own = {index: norms[index] for index in parameters if index in norms}
            if own:
                yield _Measured(pattern=pattern, step=step, module=module, norms=own)


def _groups(context: RuleContext, pattern: str) -> Iterator[tuple[ModuleRecord | None, list[int]]]:
    """Yield the modules that a pattern means, each with its parameters and those below it."""
    recording = context.recording
    if pattern == WHOLE_MODEL:
        yield None, [record.index for record in recording.parameters]
        return
    below: dict[int, list[int]] = {}
    for record in recording.parameters:
        module: int | None = record.module
        while module is not None:
            below.setdefault(module, []).append(record.index)
            module = recording.modules[module].parent
    for module, parameters in below.items():
        found = recording.modules[module]
        if found.path and matches(found.path, pattern):
            yield found, parameters


def _when(context: RuleContext, step: int) -> str:
    """Return the number of steps before; nothing if no other step was made."""
    way = sum(1 for one in context.recording.steps if one.kind != "probe")
    if way == 1:
        return ""
    return f" after {step} step{'' if step == 1 else 's'}" if step else " at the first step"


def _others(more: int) -> str:
    """Return the number of other modules above a limit; empty if there are none."""
    return f", and {more} more module{'' if more == 1 else 's'}" if more > 0 else ""


def _sides(limit: NormLimit) -> tuple[tuple[float | None, Side], ...]:
    return (limit.maximum, "above"), (limit.minimum, "below")


def _order(norm: float) -> float:
    return math.inf if math.isnan(norm) else norm
