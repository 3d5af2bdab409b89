"""GS204: gradients that are exactly zero, step after step."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import Subtrees, named
from gradscope.analysis.reach import (
    Reach,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.parameters import DroppedRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.causes import function_name
from gradscope.rules.helpers.outputs import (
    constant_ratios,
    feeds_loss,
    normalises_alone,
)
from gradscope.rules.helpers.zeros.dead_ends import DeadEnd, DeadEnds
from gradscope.rules.helpers.zeros.flat_factors import filled_bias
from gradscope.rules.helpers.zeros.kinds import (
    ScaledRounding,
    is_always_one,
    is_flat_output,
    is_left_out,
    is_satisfied,
    is_settled,
    lasts,
    learns,
    never_learns,
    scaled_roundings,
    starts_at_zero,
    weighs_alone,
)
from gradscope.rules.helpers.zeros.phrasing import (
    ALONE,
    CUTTING,
    REMEDY_OF_ALONE,
    WHATEVER_VALUES,
    is_of_one_row,
    remedy,
    twice_differentiated,
    why,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Evidence, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroGradient(Rule):
    """Backward reaches parameters, but their gradient is exactly zero in every step.

    What it finds:
        Parameters whose gradient is exactly 0.0 in every element, after the first backward and
        after every probing step, and the operation that turned the gradient into zeros. Examples
        are two factors that both start at zero, a ReLU whose inputs are all negative, a clamp that
        cuts off everything, `round`, `sign` and `floor`, a draw by `torch.normal` or
        `torch.bernoulli`, the second derivative of ReLU, a saturated activation, and a mask that
        leaves nothing. Also weights that are rounded by a scale of their own, such as their largest
        magnitude: they learn through the scale alone, whose gradient one element or all get alike.

    Why it matters:
        A zero gradient changes nothing, and its cause remains: without weight decay the parameters
        never change. One factor that starts at zero is harmless if the other one does not, as in
        low-rank adaptation.

    How it is measured:
        From each such parameter towards the loss, the first operation whose own output has a
        gradient is the dead end. If this is a product with zeros that follow from the constant
        output of a ReLU or a clamp, the dead end is that activation. The rule repeats the forward
        with other random numbers, up to 32 times and less often for a large model. If these give a
        gradient to some of the parameters, such as with dropout or a sampled path, the dead end is
        due to chance and is not reported.

        The level says how certain the mistake is, and how much it costs. By the share of the
        trainable elements that are stuck, it is a note below `note_below`, an error above
        `error_above`, and a warning in between. Regardless of the share, it is an error for a
        softmax over a layer's only output that is the prediction, or weighs the positions of a
        sequence, over the single result of `topk(1)`, for a prediction after `round`, `sign` and
        the like, and for zero second derivatives if nothing else learns. If a tensor is divided by
        its own sum over a single element, or a layer or group normalisation has one element in each
        group, a gradient of rounding errors counts as zero. Parameters that learned at first and
        get zeros over the last part of a run count as stuck. It is at least a warning for a
        parameter that a clamp cuts off, for a softmax over one element whose results weigh another
        dimension, if a clamp, a ReLU or saturation removes the gradient of the whole prediction,
        and if two trained factors both start at zero. Without probing steps, and for the state of a
        recurrent layer, it is at most a warning, except for such a softmax.

    How to fix it:
        Initialise one of the two factors at random. If a layer died, lower the learning rate, raise
        the bias, or use LeakyReLU or GELU. Pass the gradient around rounding and clamping with a
        straight-through estimator. Draw with `rsample()`. If the loss takes second derivatives, use
        tanh, SiLU or softplus.

    When it may be wrong:
        A batch without examples for a branch looks the same. It is a note for experts next to
        others that learn, and for a loss of zero whose margin is kept or that training has reached;
        a warning if nothing at all learns in any step of a run.
        For a batch of a single example it is at most a warning if another example may open the
        path. The rule skips rows of embeddings, experts without a row, biases whose parts cancel,
        and weights that meet only zeros in the data.

    Source:
        Measured: with three steps of Adam, 8 of 8 healthy kinds of zero initialisation open (LoRA,
        ReZero, Fixup, AdaLN-zero and others), 15 of 15 stuck models stay, and none of 86 healthy
        models is found. SAPT issue 11, relora issue 18: low-rank factors that both started at zero.
    """

    code: ClassVar[str] = "GS204"
    name: ClassVar[str] = "zero-gradient"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = (
        "GS102",
        "GS105",
        "GS106",
        "GS109",
        "GS110",
        "GS111",
        "GS118",
        "GS203",
        "GS306",
    )
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_of_trainable_elements"),)
    needs: ClassVar[Needs] = (has_backward,)

    note_below: float = 0.05
    """Share of the trainable elements, 0 to 1, below which a finding is a note. Measured: true but
    harmless cases, such as a query that only one position uses, stay below it.
    """
    error_above: float = 0.25
    """Share of the trainable elements, 0 to 1, above which a finding is an error. Measured, as
    above.
    """
    rounding: float = 1e-5
    """Share of the largest gradient norm below which a gradient counts as rounding errors. Chosen:
    100 times the spacing of float32. Applies only after a ratio that is always 1, and 1,000 times
    as much after a normalisation of single elements.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line at which gradients become zero."""
        total = sum(p.numel for p in context.recording.parameters if p.requires_grad)
        behind_alone = context.parameters_behind(normalises_alone(context))
        for end in DeadEnds(context).found:
            if end.node.operation.startswith(CUTTING) and behind_alone & set(end.parameters):
                continue  # an activation of a bias alone: the normalisation below is the cause
            if (end.in_recurrent_layer or end.calls_from_zero) and _is_only_step(context):
                continue  # a later step may go on from the state of this one
            elements = sum(context.recording.parameters[p].numel for p in end.parameters)
            context.measured_share(
                self.code,
                "share_of_trainable_elements",
                elements,
                total,
                self.note_below,
                subject=end.node.operation,
                site=end.site,
            )
            yield self._finding(context, end, elements / total if total else 0.0)
        stuck = dict[int | None, set[int]]()
        ratios = {node.site: node for node in constant_ratios(context)}
        for node in constant_ratios(context):
            stuck.setdefault(node.site, set()).update(self._rounded(context, node))
        for site, parameters in stuck.items():
            if parameters:
                yield self._of_ratio(context, ratios[site], tuple(sorted(parameters)))
        yield from self._of_roundings(context)

    def _rounded(self, context: RuleContext, node: NodeRecord) -> tuple[int, ...]:
        """Return the weights that get nothing but rounding errors, by a ratio that is always 1."""
        stats = context.first.parameter_stats.values()
        norms = {s.parameter: s.gradient.norm for s in stats if s.gradient is not None}
        largest = max(norms.values(), default=0.0)
        behind = context.parameters_behind([node.index])
        # Such a layer divides rounding errors by the root of its epsilon, about 0.003.
        rounding = self.rounding * (1_000 if node.index in normalises_alone(context) else 1)
        small = [p for p in behind if norms.get(p, math.inf) < rounding * largest]
        # Without a gradient, or beside NaN, nothing is small in proportion.
        return tuple(sorted(small)) if 0 < largest < math.inf else ()

    def _of_ratio(
        self, context: RuleContext, node: NodeRecord, parameters: tuple[int, ...]
    ) -> Finding:
        what = named(Subtrees(context.recording).parts(parameters))
        site, related = context.site(node.site), None
        if node.index in normalises_alone(context):
            cause, advice = ALONE, REMEDY_OF_ALONE
            site = _line_of_module(context, node) or site
        else:
            _, total = context.successors[node.index]
            made = context.recording.nodes[total.node].site
            related = context.related(made, "the sum is made here") if made != node.site else None
            cause = "a tensor is divided by its own sum over one element, which is always 1"
            advice = "divide by a sum over more than one element, or leave the division out"
        return self.finding(
            context,
            message=(
                f"the gradient of {what} ({counted(len(parameters), 'parameter')}) is zero up to "
                f"rounding: {cause}"
            ),
            remedy=advice,
            site=site,
            related=(related,),
            severity="error",
            parameters=parameters,
            evidence={"operation": node.operation, "rounding": self.rounding},
            count=len(parameters),
        )

    def _of_roundings(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for each line that rounds with a scale of its own input."""
        found: dict[int | None, list[ScaledRounding]] = {}
        for one in scaled_roundings(context):
            found.setdefault(one.node.site, []).append(one)
        for site, roundings in found.items():
            first = roundings[0]
            parameters = sorted(frozenset[int]().union(*(one.parameters for one in roundings)))
            what = named(Subtrees(context.recording).parts(parameters))
            operation = function_name(first.node)
            yield self.finding(
                context,
                message=(
                    f"the gradient of {what} ({counted(len(parameters), 'parameter')}) comes "
                    f"through the scale of {operation} alone: the derivative of {operation} itself "
                    "is zero"
                ),
                remedy=(
                    "pass the gradient around it with a straight-through estimator: "
                    "`x + (quantized - x).detach()`"
                ),
                site=context.site(site),
                related=(context.related(first.scale.site, "the scale is made here"),),
                severity="error",
                parameters=tuple(parameters),
                evidence={"operation": first.node.operation, "roundings": len(roundings)},
                count=len(parameters),
            )

    def _finding(self, context: RuleContext, end: DeadEnd, share: float) -> Finding:
        probes = len(context.probes)
        parts = Subtrees(context.recording).parts(end.parameters)
        what = f"{named(parts)} ({counted(len(end.parameters), 'parameter')})"
        lasting = f", also after {counted(probes, 'optimizer step')}" if probes else ""
        if context.run is not None and probes:
            lasting = " in every step"
        elif lasts(context, end):
            lasting = " to the end of the run"
        lies_elsewhere = end.site != context.site(end.node.site)
        lost = _lost_to_derivative(context) if twice_differentiated(end) else ()
        return self.finding(
            context,
            message=f"the gradient of {what} is exactly zero{lasting}: {why(context, end)}",
            remedy=remedy(context, end),
            site=end.site,
            related=(
                context.related(end.made, "the layer is made here"),
                context.related(end.node.site, "the gradient becomes zero here")
                if lies_elsewhere
                else None,
                context.related(end.cancelled, "the other of the two terms")
                if end.cancelled != end.site
                else None,
                context.related(_bias_line(context, end), "the bias is filled here"),
            ),
            severity=self._severity(context, end, share),
            parameters=(*end.parameters, *lost),
            evidence={
                "operation": end.node.operation,
                "share_of_trainable_elements": share,
                **self._grounds(context, end),
                "steps": 1 + probes,
            },
            count=len(end.parameters),
            # Zeros that rounding makes are where a vanishing gradient ends.
            caused_by=("GS102",) if end.underflows else (),
            # Nothing that learns is left to tell the examples apart.
            explains=("GS715",) if share == 1 and end.node.operation.startswith(CUTTING) else (),
        )

    def _grounds(self, context: RuleContext, end: DeadEnd) -> Evidence:
        """Return the reasons for the severity, besides the share."""
        if is_always_one(context, end) or is_flat_output(context, end):
            predicts = feeds_loss(context, end.node)
            return {"is_the_prediction": predicts, "error_above": self.error_above}
        return {"note_below": self.note_below, "error_above": self.error_above}

    def _severity(self, context: RuleContext, end: DeadEnd, share: float) -> Severity:
        # What is no mistake by its kind is a note, however much of the model it holds.
        if is_left_out(context, end):
            return "note"
        if is_satisfied(context, end):
            return "warning" if never_learns(context) else "note"
        if is_always_one(context, end):
            return "error"
        flat = is_flat_output(context, end)
        if end.calls_from_zero:
            return "error"
        may_open = not (
            flat
            or is_settled(context, end)
            or weighs_alone(context, end)
            or starts_at_zero(context, end)
        )
        if share < self.note_below and may_open:
            return "note"
        is_sure = bool(context.probes) and not is_of_one_row(context, end)
        if end.in_recurrent_layer or not (is_sure or lasts(context, end)):
            return "warning"
        is_certain = flat and end.node.operation.startswith(WHATEVER_VALUES)
        # A parameter beyond its clamp may have reached a limit that is meant.
        is_certain |= not end.node.operation.startswith("Clamp") and is_settled(context, end)
        is_certain |= twice_differentiated(end) is not None and not learns(context)
        return "error" if is_certain or share > self.error_above else "warning"


def _is_only_step(context: RuleContext) -> bool:
    """Return whether a run has a single backward of this line."""
    run = context.run
    return run is not None and len(run.losses_before) + len(run.losses) == 1


def _line_of_module(context: RuleContext, node: NodeRecord) -> Site | None:
    """Return the line that made the module which an operation belongs to."""
    if node.module_call is None:
        return None
    call = context.recording.calls[node.module_call]
    return context.site(context.recording.modules[call.module].site)


def _bias_line(context: RuleContext, end: DeadEnd) -> Site | None:
    """Return the line that fills the bias of the layer before a dead activation."""
    # A product with zeros is dead by its other factor, whatever the bias is.
    is_dead = not end.zeros and end.node.operation.startswith(("Relu", "Threshold"))
    return filled_bias(context, end.node) if is_dead else None


def _lost_to_derivative(context: RuleContext) -> tuple[int, ...]:
    """Return the parameters that the model's output depends on, and its derivative does not."""
    reach = context.shared(Reach)
    called = {call.module for call in context.recording.calls}
    known = {parameter for stop in reach.stops for parameter in stop.parameters}
    for record in context.recording.evidence_of(DroppedRecord):
        known.update(record.parameters)
    owners = {index: context.recording.parameters[index].module for index in reach.lost - known}
    return tuple(sorted(index for index, owner in owners.items() if owner in called))
