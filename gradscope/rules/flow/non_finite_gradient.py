"""GS103 and GS114: gradients that backward makes non-finite, and that are masked again."""

import math
import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.failures import SuspectedBreak
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.non_finite.causes import Cause, cause_of_break, what_it_is
from gradscope.rules.helpers.non_finite.forward_origins import (
    ForwardOrigin,
    certainty,
    forward_origins,
    line_evidence,
    line_near,
    other_locations,
)
from gradscope.rules.helpers.non_finite.gradient_breaks import (
    SINGULARITIES,
    GradientBreak,
    broken_steps,
    forward_stats,
    gradient_breaks,
    is_singular,
    plain_name,
)
from gradscope.rules.helpers.source_text import line_of
from gradscope.rules.rule import Rule

_LOOK = "check the input of {}: 0, or numbers near the dtype's limit"
_SQUARE = re.compile(r"square\(|\*\*\s*2\b|pow\([^()]*\b2\)")
_MASK_BEFORE = (
    "mask NaN and infinity before {}: where() after it only selects values, and its backward "
    "multiplies 0 by NaN"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteGradient(Rule):
    """NaN or infinity in a gradient although the loss is finite.

    What it finds:
        The operation whose backward receives finite gradients and returns NaN or infinity, if this
        breaks the gradient of a parameter. Also NaN of the forward that a mask or a selection keeps
        out of the loss, but not out of backward.

    Why it matters:
        One NaN in a gradient makes every weight NaN that the step updates, permanently. The loss
        may still be finite and show no problem.

    How it is measured:
        The elements that are not finite are counted in the gradient of every tensor. In the order
        of backward, an operation breaks the gradient if everything it receives is finite and
        something it returns is not. If the operation multiplied by NaN of the forward, the forward
        runs again, and the finding names the line that made the NaN. Infinities that a later
        operation turns into zeros, such as that of sqrt(0) before a ReLU, reach no parameter and
        are not reported. In a training run, backward is also captured if an operation has saved a
        point at which its derivative is infinite. Without such a capture, the rule infers the
        operation from the parameters with broken gradients and from the operations of the last
        captured step, and says so.

    How to fix it:
        Keep the argument away from the point at which the derivative is infinite: add a small
        number under a root, or use log_softmax and losses with logits instead of the log of a
        probability. With `torch.where`, make the argument safe before the operation: the branch
        that was not chosen gets a gradient of zero in backward, and zero times infinity is NaN.

    Fix safety:
        Safe. 1e-8 is added to the argument of a root, a logarithm or a power, and to a denominator
        that is a norm, a root or a deviation. The argument of an inverse cosine is clamped, logit
        gets `eps`, and `where(ok, f(x), y)` becomes `where(ok, f(where(ok, x, 1.0)), y)`. No edit
        for other functions, or if the line calls the function twice. torch gives a norm and a
        deviation of zeros the gradient zero itself.

    When it may be wrong:
        If several operations use one tensor, the finding names the one whose values show a singular
        point, or all of them if none does. A hook that makes NaN is mistaken for the operation.

    Source:
        Measured: of nine models whose parameters got NaN or infinity, all nine were located by the
        first such operation; `torch.autograd.detect_anomaly` located six, and sees no infinity.
    """

    code: ClassVar[str] = "GS103"
    name: ClassVar[str] = "non-finite-gradient"
    level: ClassVar[Severity] = "error"
    judges_late: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = (
        "GS101",
        "GS102",
        "GS105",
        "GS106",
        "GS108",
        "GS109",
        "GS110",
        "GS111",
        "GS112",
        "GS204",
        "GS408",
        "GS601",
        "GS602",
        "GS603",
        "GS604",
    )
    fix: ClassVar[FixRule | None] = FixRule(safety="safe")

    def skip_reason(self, context: RuleContext) -> str | None:
        """Without gradients nothing can be judged."""
        is_suspected = bool(context.recording.evidence_of(SuspectedBreak))
        return None if context.has_backward or is_suspected else "backward delivered no gradient"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose backward breaks a gradient."""
        if context.run is not None and context.run.is_left_out:
            return
        origins = [one for one in context.shared(forward_origins) if one.breaks]
        for origin in origins:
            yield self._of_forward(context, origin)
        # A break on NaN of the forward is told at the line that made the NaN.
        reported = {one.node.index for origin in origins for one in origin.breaks}
        by_line: dict[int | None, list[GradientBreak]] = {}
        for one in context.shared(gradient_breaks):
            if one.parameters and one.node.index not in reported and not _is_of_scale(context, one):
                by_line.setdefault(line_of(context, one.node), []).append(one)
        for site, breaks in by_line.items():
            yield self._finding(context, site, breaks)
        for suspected in context.recording.evidence_of(SuspectedBreak):
            yield self._suspicion(context, suspected)

    def _suspicion(self, context: RuleContext, suspected: SuspectedBreak) -> Finding:
        """Return the finding of a step that was not captured."""
        singularity = SINGULARITIES.get(plain_name(suspected.operation))
        function = singularity.function if singularity else plain_name(suspected.operation)
        site = context.site(suspected.site)
        is_square = function == "pow" and site is not None and _SQUARE.search(site.source)
        if is_square:
            singularity, function = None, "the square"  # its derivative is finite everywhere
        where = f", whose derivative is infinite where {singularity.where}" if singularity else ""
        # Several operations that may be it leave the origin open.
        is_clear = suspected.is_likely and not suspected.others
        chance = "most likely" if is_clear else "possibly"
        broken = suspected.parameters
        are = "1 gradient is" if len(broken) == 1 else f"{len(broken)} gradients are"
        return self.finding(
            context,
            message=f"{are} not finite although the loss is, {chance} from the backward of "
            f"{function}{where} (this step was not captured; the operations are those of step "
            f"{suspected.matched_step})",
            remedy=singularity.remedy
            if singularity
            else (_MASK_BEFORE if is_square else _LOOK).format(function),
            site=suspected.site,
            related=[context.related(site, "or from this one") for site in suspected.others],
            parameters=broken,
            evidence={
                "operation": suspected.operation,
                "parameters": len(broken),
                "line_is": "matched",
                "matched_step": suspected.matched_step,
                "operation_is": "inferred",
            },
            count=len(broken),
            # The clip that spreads the NaN is the better line only where its origin is unknown.
            caused_by=() if is_clear else ("GS408",),
            explains=("GS104",),
        )

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for gradients of a finite loss that are non-finite from a step on."""
        for broken in broken_steps(context):
            if not math.isfinite(broken.loss):
                continue
            yield self.finding(
                context,
                message=f"the gradient of step {broken.step:,} is not finite although its loss is "
                f"{short(broken.loss, 4)}, and makes the weights non-finite{broken.followers}",
                remedy=broken.remedy,
                site=broken.backward.site,
                related=(broken.related,),
                parameters=broken.parameters,
                count=broken.count,
                step=broken.step,
                # A clip that spreads one NaN to all gradients is easier to fix.
                caused_by=("GS408",),
                explains=("GS104",),
            )

    def _of_forward(self, context: RuleContext, origin: ForwardOrigin) -> Finding:
        """Return the finding for gradients that break on NaN which does not reach the loss."""
        parameters = {parameter for one in origin.breaks for parameter in one.parameters}
        spoilt = "1 gradient is" if len(parameters) == 1 else f"{len(parameters)} gradients are"
        here = line_of(context, origin.breaks[0].node)
        broken = context.related(here, "backward reaches it first here")
        taken_in = origin.taken_in(context)
        return self.finding(
            context,
            message=f"{origin.made}; the loss is finite, but {spoilt} "
            f"not{certainty(context, origin.node)}",
            remedy=origin.cause.remedy,
            site=origin.position(context),
            related=(taken_in, None if here in (origin.site, origin.seen.site) else broken),
            parameters=sorted(parameters),
            modules=origin.modules(context),
            evidence={
                **origin.evidence,
                "parameters": len(parameters),
                **line_evidence(context, origin.node),
            },
            count=len(parameters),
            caused_by=("GS101",) if origin.cause.by_growth else (),
            explains=_later_losses(context),
        )

    def _finding(
        self, context: RuleContext, site: int | None, breaks: list[GradientBreak]
    ) -> Finding:
        first = breaks[0]
        cause = cause_of_break(context, first)
        parameters = {parameter for one in breaks for parameter in one.parameters}
        return self.finding(
            context,
            message=_message(first, cause, len(parameters)) + certainty(context, first.node.index),
            remedy=cause.remedy,
            site=line_near(context, first.node.index) if site is None else site,
            related=(_still_finite(context, first), *other_locations(context, site)),
            parameters=sorted(parameters),
            evidence={
                "operation": first.node.operation,
                "given_norm": first.given.norm,
                "nonfinite_elements": first.returned.nonfinite,
                "elements": first.returned.numel,
                "parameters": len(parameters),
                **cause.evidence,
                **line_evidence(context, first.node.index),
            },
            count=len(parameters),
            caused_by=("GS101",) if cause.by_growth else (),
            explains=_later_losses(context),
        )


def _is_of_scale(context: RuleContext, one: GradientBreak) -> bool:
    """Return whether a gradient is too large for its type only until a scale is found."""
    is_sought = context.run is not None and context.run.is_scale_sought
    return is_sought and not is_singular(context.shared(forward_stats), one.node)


def _later_losses(context: RuleContext) -> tuple[str, ...]:
    """Return the later losses of a run in which gradients of a finite loss are non-finite."""
    loss = None if context.first.step is None else context.first.step.loss
    is_finite = loss is None or math.isfinite(loss)
    return ("GS104",) if context.run is not None and is_finite else ()


def _message(first: GradientBreak, cause: Cause, parameters: int) -> str:
    spoilt = "1 parameter gets it" if parameters == 1 else f"{parameters} parameters get it"
    return (
        f"the backward of {cause.function} turns a finite gradient into "
        f"{what_it_is(first.returned)}{cause.reason}; {spoilt}"
    )


def _still_finite(context: RuleContext, first: GradientBreak) -> RelatedLocation | None:
    """Return the line that handed over the last gradient that was finite."""
    # What ran first in the forward is the last in backward, just before the break.
    users = sorted(context.consumers(first.node.index), key=_created)
    lines = [user for user in users if user.site not in (None, first.node.site)]
    if not lines:
        return None
    return context.related(
        lines[0].site, f"the gradient is finite up to here: its norm is {short(first.given.norm)}"
    )


def _created(node: NodeRecord) -> int:
    return -1 if node.sequence is None else node.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedInfinity(Rule):
    """Backward makes an infinite gradient, which is masked to zero before it reaches a parameter.

    What it finds:
        An operation at a point where its derivative is infinite, such as `sqrt` or `log` of zero,
        if a ReLU, a clamp or a selection then sets its gradient to zero.

    Why it matters:
        The parameters are finite only by chance. With a smooth activation instead of the ReLU, a
        weight times the infinity, or another mask, zero times infinity is NaN, which destroys the
        training in one step.

    How it is measured:
        An operation counts if its backward gets finite gradients and returns NaN or infinity, which
        reach no parameter. No parameter may be non-finite for another reason.

    How to fix it:
        Keep the argument away from the point, as `sqrt(x + 1e-8)` or `x.clamp(min=1e-8)` does.

    When it may be wrong:
        If the mask is part of the design. For this reason the finding is a note.

    Source:
        PyTorch issue 10729 and the notes on `torch.where`: a masked branch gets zero times
        infinity. Measured: the rule reports three of three such models of the tests, and none whose
        derivative is finite or whose infinity reaches a parameter, which is GS103.
    """

    code: ClassVar[str] = "GS114"
    name: ClassVar[str] = "masked-infinity"
    level: ClassVar[Severity] = "note"

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if context.has_backward else "backward delivered no gradient"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose infinity is masked."""
        stats = context.first.parameter_stats.values()
        if any(stat.gradient is not None and stat.gradient.is_broken for stat in stats):
            return
        reported = set[int | None]()
        for one in context.shared(gradient_breaks):
            # What reaches parameters is broken, and another rule's.
            if not one.parameters and one.node.site not in reported:
                reported.add(one.node.site)
                yield self._finding(context, one)

    def _finding(self, context: RuleContext, one: GradientBreak) -> Finding:
        singularity = SINGULARITIES.get(plain_name(one.node.operation))
        function = singularity.function if singularity else plain_name(one.node.operation)
        where = f" where {singularity.where}" if singularity else ""
        count = one.returned.nonfinite
        many = "elements are" if count is None else f"{count:,} of {one.returned.numel:,} are"
        return self.finding(
            context,
            message=(
                f"the backward of {function} makes gradients that are not finite{where}, and a "
                f"later operation masks them: {many} NaN or infinite"
            ),
            remedy=singularity.remedy if singularity else "keep its argument away from the point",
            site=one.node.site,
            evidence={"operation": one.node.operation, "nonfinite": count},
            count=count or 1,
        )
