"""GS113: gradient norms beyond the limits that the user has set."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleRecord
from gradscope.rules.case import Case
from gradscope.rules.measure import Measure
from gradscope.rules.patterns import matches
from gradscope.rules.rule import Rule
from gradscope.rules.settings import WHOLE_MODEL, NormLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNormLimit(Rule):
    """A gradient norm lies beyond the limits that you have set.

    What it finds:
        A global gradient norm above `--max-grad-norm` or below `--min-grad-norm`, and modules whose
        norm is beyond the limits that the configuration sets for them.

    Why it matters:
        Where the usual size of a model's gradients is known, a plain limit on them is the simplest
        alarm: it tells of changes that no rule can call wrong.

    How it is measured:
        The Euclidean norm over all parameters, or over those of a module and of the modules in it,
        in the step that is judged and before any clipping. NaN and infinity are beyond every limit.
        Without a limit the rule does not run.

    How to fix it:
        Look at what has changed since the limit was set, or set another one.

    When it may be wrong:
        The norm depends on the batch, on whether the loss is a sum or a mean, and on the step:
        a limit has to leave room for that.

    Source:
        None: the limits are yours.
    """

    code: ClassVar[str] = "GS113"
    name: ClassVar[str] = "gradient-norm-limit"
    level: ClassVar[Severity] = "error"
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure(number="norm", limit="maximum"),
        Measure(number="norm", limit="minimum", worse="lower"),
    )

    def is_asked_for(self, case: Case) -> bool:
        """Return whether any limit is set."""
        return bool(case.norm_limits)

    def obstacle(self, case: Case) -> str | None:
        """Return why norms cannot be compared, None where they can."""
        return None if _norms(case) else "no parameter has a gradient"

    def check(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for every limit that a norm lies beyond."""
        norms = _norms(case)
        for pattern, limit in case.norm_limits.items():
            yield from self._of_pattern(case, norms, pattern, limit)

    def _of_pattern(
        self, case: Case, norms: Mapping[int, float], pattern: str, limit: NormLimit
    ) -> Iterator[Finding]:
        beyond: dict[str, list[tuple[ModuleRecord | None, list[int], float]]] = {}
        for module, parameters in _groups(case, pattern):
            measured = [index for index in parameters if index in norms]
            if not measured:
                continue
            norm = _total(norms[index] for index in measured)
            if limit.maximum is not None and not norm <= limit.maximum:
                beyond.setdefault("above", []).append((module, measured, norm))
            elif limit.minimum is not None and norm < limit.minimum:
                beyond.setdefault("below", []).append((module, measured, norm))
        for side, groups in beyond.items():
            bound = limit.maximum if side == "above" else limit.minimum
            yield self._finding(case, norms, (pattern, side, bound or 0.0), groups)

    def _finding(
        self,
        case: Case,
        norms: Mapping[int, float],
        limit: tuple[str, str, float],
        groups: list[tuple[ModuleRecord | None, list[int], float]],
    ) -> Finding:
        pattern, side, bound = limit
        is_above = side == "above"
        worst = max if is_above else min
        module, parameters, norm = worst(groups, key=lambda group: _order(group[2]))
        place = worst(parameters, key=lambda index: _order(norms[index]))
        record = case.recording.parameters[place]
        what = "the global gradient norm" if module is None else f"the norm of {module.path}"
        more = len(groups) - 1
        others = f", and {more} more module{'' if more == 1 else 's'}" if more else ""
        extreme = "largest" if is_above else "smallest"
        share = f"; the {extreme} of one parameter is {norms[place]:.3g} in {record.name}"
        return self.finding(
            case,
            message=f"{what} is {norm:.3g}, {side} the limit of {bound:g}{others}{share}",
            remedy="look at what has changed since the limit was set, or set another one",
            site=record.site if module is None or module.site is None else module.site,
            parameters=[index for _, indices, _ in groups for index in indices],
            evidence={
                "norm": norm,
                "maximum" if is_above else "minimum": bound,
                f"{extreme}_parameter": record.name,
                f"{extreme}_norm": norms[place],
            },
            count=len(groups),
            # The line is that of the worst parameter, which is another one in the next run.
            cause=f"{side} the limit of {pattern}",
            step=case.first.step.index if case.first.step else None,
        )


def _norms(case: Case) -> dict[int, float]:
    stats = case.first.parameter_stats
    return {index: stat.gradient.norm for index, stat in stats.items() if stat.gradient is not None}


def _groups(case: Case, pattern: str) -> Iterator[tuple[ModuleRecord | None, list[int]]]:
    """Yield the modules that a pattern means, each with its parameters and those below it."""
    recording = case.recording
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


def _total(norms: Iterable[float]) -> float:
    known = tuple(norms)
    return math.nan if any(map(math.isnan, known)) else math.hypot(*known)


def _order(norm: float) -> float:
    return math.inf if math.isnan(norm) else norm
