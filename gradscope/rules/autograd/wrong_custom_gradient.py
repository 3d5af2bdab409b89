"""GS505: a backward that does not fit its forward, of a custom function or a checkpoint."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.intent import Intent
from gradscope.analysis.model_parts import named
from gradscope.analysis.reach import Reach
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short, times_text
from gradscope.recording.events import GradientHooksEvent, OneSignedHookEvent, only
from gradscope.recording.evidence.failures import (
    CustomFunctionRecord,
    InputCheck,
    UnrepeatedRegion,
    WithheldRecord,
)
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.source_text import turned_by
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCustomGradient(Rule):
    """The backward of a custom function or a checkpoint does not fit its forward.

    What it finds:
        Subclasses of `torch.autograd.Function`, applied in the forward, whose backward returns
        another gradient than the forward's finite differences show: a forgotten term or factor, a
        wrong sign, the derivative of another function, gradients in the wrong order. Also a
        backward that returns None for an input that parameters need a gradient through; one of a
        surrogate that does not depend on the gradient that it is given;
        `checkpoint(…, preserve_rng_state=False)` around a forward with dropout or other noise; a
        function that is named after gradient reversal and hands the gradient on with its sign; and
        a straight-through estimator with its signs swapped, `hard - soft + soft.detach()`. In a
        run, also hooks on parameters that a script registers again in every epoch or step, and
        hooks that leave only one sign of the gradient, as `clamp(gradient, 0, limit)` does.

    Why it matters:
        autograd does not check a custom backward. All layers below the function are trained with
        wrong gradients that are finite, look healthy, and may even reduce the loss for a while. A
        checkpoint runs its forward again in backward. With other dropout masks, the gradient is
        that of another output than the one in the loss.

    How it is measured:
        The function runs separately, in float64 (in float32 if it supports nothing else), on copies
        of inputs from the forward. For up to 64 elements of each input, the central difference of a
        random combination of the outputs is compared with what backward returns. The deviation is
        the norm of the differences over the larger of the two norms. Elements at a kink, or without
        influence on the output, are skipped. A training run keeps copies of a few inputs, at most
        32 MiB, and runs the functions after the script's last line. A checkpoint counts if it does
        not keep the state of the random generator, and if this state differs after its forward from
        before. Checkpoints are judged in training runs, too. Reversal is tried with a gradient of
        ones. The terms of a straight-through estimator are read from the line that detaches one of
        them. In every tenth step, the hooks of the same code on the parameters of optimizers are
        counted. Hooks that return nothing change no gradient and are left out. A hook leaves one
        sign if, in `least_reads` of these steps, no gradient of its parameters, at least
        `least_parameters`, has an element of the other sign, and `least_zeros` of all elements are
        exactly 0.

    How to fix it:
        Write down the derivative of what forward computes, multiply it by the gradient that
        backward is given, and return one gradient per input, in the inputs' order.
        `torch.autograd.gradcheck(Function.apply, inputs_in_float64)` tells when it is right. Leave
        `preserve_rng_state` of a checkpoint at True.

    When it may be wrong:
        If the gradient is meant to differ from the derivative and the forward is smooth, such as in
        an implicit layer whose solver stops early. The rule recognises straight-through estimators,
        gradient reversal and scaling, surrogate gradients of steps, and functions that clip their
        gradient, and does not report them. Functions of installed packages get at most a warning,
        because their gradient may be an approximation; in a run, they are not checked, nor is any
        function in a job of several ranks. In float32, deviations below 0.1 are ignored. A function
        in a checkpoint may set the seed itself.

    Source:
        torch documentation, "Gradcheck mechanics" and "Extending torch.autograd". Measured, over
        ten right and five wrong functions in float64 and three right ones in float32, 20 seeds
        each: right ones deviate by less than 1e-9 and 1e-4, wrong ones by more than 0.3. The
        gradient of a checkpointed layer with a dropout of 0.5 deviates by 0.46 if the state is not
        kept, and by 0 if it is.
    """

    code: ClassVar[str] = "GS505"
    name: ClassVar[str] = "wrong-custom-gradient"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS101", "GS102", "GS204")
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure(number="relative_deviation"),
        Measure(number="hooks"),
    )

    error_deviation: float = 0.1
    """Relative deviation above which it is an error. Measured: mistakes of sign, factor, term and
    order begin at 0.3; correct functions stay below 1e-4 in float32.
    """
    warning_deviation: float = 0.01
    """Relative deviation above which it is a warning: an approximation, or a solver that stops
    early, may reach it. Applies only to functions compared in float64.
    """

    least_hooks: int = 4
    """Number of times that a hook is on one parameter. Chosen: two or three parts of a script may
    scale the same gradient.
    """
    least_growths: int = 2
    """Number of counts, ten steps apart, that find more of them than the one before (chosen)."""
    least_reads: int = 3
    """Number of reads, ten steps apart, of gradients with hooks (chosen)."""
    least_parameters: int = 3
    """Number of parameters with the hook. Chosen: the weight and the bias of one layer may have
    gradients of one sign."""
    least_zeros: float = 0.1
    """Share of elements, 0 to 1, that such a hook sets to 0. Chosen: half of them are expected."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        kinds = (UnrepeatedRegion, WithheldRecord)
        if any(context.recording.evidence_of(kind) for kind in kinds):
            return None
        return context.probe_skip_reason("custom functions")

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every hook that a run registers again and again."""
        for hooks in only(GradientHooksEvent, context.shared(Windows).events):
            context.measured(self.code, "hooks", hooks.hooks, self.least_hooks, site=hooks.site)
            if hooks.hooks < self.least_hooks or hooks.times < self.least_growths:
                continue
            yield self.finding(
                context,
                message=(
                    f"this gradient hook is registered again and again: at the end "
                    f"{hooks.hooks} times on {counted(hooks.parameters, 'parameter')}, and "
                    "each of them changes the gradient once more"
                ),
                remedy="register the hook once, before the loop, or remove its handle",
                site=hooks.site,
                evidence={
                    "hooks": hooks.hooks,
                    "limit": self.least_hooks,
                    "hooks_at_first": hooks.before,
                },
                count=hooks.parameters,
                step=hooks.step,
            )

        for signs in only(OneSignedHookEvent, context.shared(Windows).events):
            yield from self._of_one_sign(context, signs)

    def _of_one_sign(self, context: RuleContext, signs: OneSignedHookEvent) -> Iterator[Finding]:
        limit = self.least_zeros * signs.elements
        if signs.counts < self.least_reads or signs.parameters < self.least_parameters:
            return
        context.measured(self.code, "zeros", signs.zeros, limit, site=signs.site)
        if signs.zeros < limit:
            return
        sign, way = ("negative", "down") if signs.positive else ("positive", "up")
        yield self.finding(
            context,
            message=(
                f"this gradient hook leaves no {sign} element in the gradients of "
                f"{counted(signs.parameters, 'parameter')}: {signs.zeros:,} of "
                f"{signs.elements:,} are 0, and steps move weights {way} only"
            ),
            remedy="keep both signs, as `clamp(gradient, -limit, limit)` does",
            site=signs.site,
            evidence={
                "parameters": signs.parameters,
                "zeros": signs.zeros,
                "limit": limit,
                "elements": signs.elements,
            },
            count=signs.parameters,
            step=signs.step,
        )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every function, and for every line with checkpoints."""
        for region in context.recording.evidence_of(UnrepeatedRegion):
            yield self._unrepeated(context, region)
        for record in context.recording.evidence_of(CustomFunctionRecord):
            yield from self._of_function(context, record)
        for cut in context.recording.evidence_of(PathCutRecord):
            name = turned_by(context.site(cut.site))
            # Without a join, the detached part meets no gradient in this graph, and no sign is
            # wrong.
            if name is not None and cut.joins:
                yield self._turned(context, cut, name)
        yield from self._withheld(context)

    def _of_function(self, context: RuleContext, record: CustomFunctionRecord) -> Iterator[Finding]:
        """Yield the finding for a function whose backward is wrong."""
        for one in record.inputs:
            context.measured(
                self.code,
                "relative_deviation",
                one.deviation,
                self._limit(one),
                subject=f"{record.name} {one.name}",
                site=record.applied,
            )
        wrong = [one for one in record.inputs if one.deviation > self._limit(one)]
        if record.outcome == "wrong" and wrong:
            yield self._finding(context, record, wrong)
        if record.outcome == "unreversed":
            yield self._unreversed(context, record)
        if record.outcome == "ignoring":
            yield self._ignoring(context, record)

    def _withheld(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that returns no gradient for parameters."""
        reach = context.shared(Reach)
        lines: dict[object, list[WithheldRecord]] = {}
        for records in reach.withheld.values():
            for record in records:
                lines.setdefault((record.function, record.returned), []).append(record)
        for withheld in lines.values():
            parameters = sorted({record.parameter for record in withheld})
            parts = reach.subtrees.parts(parameters)
            inputs = " and ".join(f"`{name}`" for name in {record.input: 0 for record in withheld})
            gets = "get" if len(parts) > 1 else "gets"
            yield self.finding(
                context,
                message=(
                    f"{withheld[0].function}.backward returns None for {inputs}: {named(parts)} "
                    f"({counted(len(parameters), 'parameter')}) {gets} no gradient"
                ),
                remedy=(
                    f"return the gradient for {inputs} wherever ctx.needs_input_grad has True at "
                    "its own index, or freeze the parameters with requires_grad_(False)"
                ),
                site=withheld[0].returned,
                severity=_severity_of_none(context, parameters),
                parameters=parameters,
                evidence={
                    "parameters_cut": len(parameters),
                    "parameters_learning": len(reach.learning),
                    "held_by_optimizer": reach.is_held(parameters),
                },
                count=len(parameters),
            )

    def _unreversed(self, context: RuleContext, record: CustomFunctionRecord) -> Finding:
        return self.finding(
            context,
            message=f"{record.name} does not reverse the gradient: its backward returns it with "
            "the sign that it gets, and what lies before learns to help",
            remedy="return the negative of the gradient in backward",
            site=record.applied if record.backward is None else record.backward,
            related=(context.related(record.applied, f"{record.name} is applied here"),),
            parameters=_parameters_behind(context, record),
            evidence={"sign": 1, "sign_expected": -1},
        )

    def _ignoring(self, context: RuleContext, record: CustomFunctionRecord) -> Finding:
        return self.finding(
            context,
            message=f"{record.name}.backward returns the same whatever gradient it gets: what lies "
            "before it is not trained by the loss",
            remedy="multiply the result of backward by the incoming gradient",
            site=record.applied if record.backward is None else record.backward,
            related=(context.related(record.applied, f"{record.name} is applied here"),),
            parameters=_parameters_behind(context, record),
            evidence={"outcome": record.outcome},
        )

    def _turned(self, context: RuleContext, cut: PathCutRecord, name: str) -> Finding:
        return self.finding(
            context,
            message=f"`{name}` gets the gradient of the sum with the wrong sign: it is subtracted, "
            "and added again without its gradient",
            remedy=f"add `{name}` and subtract its detached value",
            site=cut.site,
            parameters=cut.parameters,
            evidence={"sign": -1, "sign_expected": 1},
            count=len(cut.parameters),
        )

    def _unrepeated(self, context: RuleContext, region: UnrepeatedRegion) -> Finding:
        where = "once" if region.calls == 1 else f"in {region.calls} calls"
        return self.finding(
            context,
            message=(
                f"the checkpointed forward draws random numbers ({where}) and does not keep their "
                "state: backward recomputes it with others, as with other dropout masks"
            ),
            remedy="leave out preserve_rng_state=False",
            site=region.site,
            evidence={"calls_with_random_numbers": region.calls, "states_kept": 0},
            count=region.calls,
        )

    def _limit(self, check: InputCheck) -> float:
        # In float32 the finite difference itself is rounded, so only a gross deviation tells.
        return self.warning_deviation if check.dtype == "float64" else self.error_deviation

    def _finding(
        self, context: RuleContext, record: CustomFunctionRecord, wrong: list[InputCheck]
    ) -> Finding:
        worst = max(wrong, key=lambda one: one.deviation)
        written = context.site(record.backward)
        # A published package more likely has an approximate gradient than a wrong one.
        is_certain = worst.deviation > self.error_deviation and not (
            written is not None and written.is_installed
        )
        names = " and ".join(f"`{one.name}`" for one in wrong)
        return self.finding(
            context,
            message=f"{record.name}.backward returns a wrong gradient for {names}: "
            f"{_how_wrong(worst)}",
            remedy=_remedy(worst),
            site=record.applied if record.backward is None else record.backward,
            related=(context.related(record.applied, f"{record.name} is applied here"),),
            severity="error" if is_certain else "warning",
            parameters=_parameters_behind(context, record),
            evidence={
                "input": worst.name,
                "relative_deviation": worst.deviation,
                "limit": self._limit(worst),
                "analytical_norm": worst.analytical,
                "numerical_norm": worst.numerical,
                "factor": worst.factor,
                "elements_compared": worst.elements,
                "compared_in": worst.dtype,
            },
        )


def _severity_of_none(context: RuleContext, parameters: list[int]) -> Severity:
    """Return how bad it is that some parameters never get a gradient."""
    if context.shared(Intent).is_followed(parameters):
        return "note"
    # Parameters that no optimizer holds need no gradient. Without any optimizer, all are to be
    # trained.
    return "note" if context.shared(Reach).is_held(parameters) is False else "error"


def _is_a_factor(check: InputCheck) -> bool:
    # With a single element, any two numbers are multiples of each other. A factor of 0 is a missing
    # gradient.
    return check.elements > 1 and check.residual < 1e-6 < abs(check.factor)


def _how_wrong(check: InputCheck) -> str:
    if check.is_constant:
        return "it does not depend on the gradient that backward gets"
    if _is_a_factor(check):
        return f"it is {times_text(check.factor)} what finite differences show"
    return (
        f"norm {short(check.analytical)} where finite differences show {short(check.numerical)}, "
        f"{check.deviation:.0%} apart"
    )


def _remedy(check: InputCheck) -> str:
    if check.is_constant:
        return f"multiply the result of backward for `{check.name}` by the incoming gradient"
    if _is_a_factor(check) and abs(check.factor + 1) < 1e-6:
        return f"change the sign of the gradient for `{check.name}`"
    if _is_a_factor(check):
        missing = short(1 / check.factor)
        return f"look for a missing factor of {missing} in the gradient for `{check.name}`"
    return (
        f"derive the gradient for `{check.name}` from the forward, and test it with "
        "torch.autograd.gradcheck on inputs in float64"
    )


def _parameters_behind(context: RuleContext, record: CustomFunctionRecord) -> list[int]:
    """Return the parameters whose gradients come through the function."""
    nodes = [node.index for node in context.first.nodes if node.operation == record.operation]
    return sorted(context.parameters_behind(nodes))
