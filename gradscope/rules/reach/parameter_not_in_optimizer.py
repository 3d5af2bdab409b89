"""GS205: parameters with a gradient that no optimizer ever steps."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import Part, named
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.parameters import CallerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import JUDGING_ONE_OPTIMIZER, FixRule
from gradscope.rules.helpers.left_out import LeftOut
from gradscope.rules.helpers.optimizers import PROBE, Optimizers
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterNotInOptimizer(Rule):
    """Parameters get a gradient but are in no optimizer.

    What it finds:
        Parameters that require grad and get a gradient, but are in no known optimizer. They were
        created after the optimizer, such as a new head, or are missing from the list that it was
        given.

    Why it matters:
        No step ever changes them: a new head stays random, and the rest of the model adapts to it.
        The loss falls nevertheless, which hides the problem.

    How it is measured:
        By identity, against the target's optimizer and every other optimizer that was made while
        the target was loaded. It is an error if the parameters were made after the optimizer, if
        the optimizer holds other parameters of the same module, or if a small part of a model is
        missing that uses the output of trained parameters, or a layer of any size that falls
        through the groups of an optimizer with several. It is a warning for other large parts, for
        the first layers, and for networks of several layers next to whole trained modules. It is a
        note if the optimizer was given one network and another is missing, such as a critic or a
        discriminator that the loss passes through. It is also a note if the optimizer holds less
        than `most_share` of all tensors, or less than `most_elements` of all elements: that looks
        like a choice, unless it holds the weights of layers without their biases. In a training
        run, all optimizers that ever step count, parameters that move count as trained, and first
        layers are mostly notes. A layer that combines a weight that is held with what it computed
        of a parameter that is left out is no first layer: it is held in part.

        A separate network in a training run is either a decoder that was forgotten, or a judge that
        should stay fixed. It is a note if there is evidence for a judge: loaded weights, eval mode,
        a name such as `teacher`, or more than `most_times` the elements that are trained. Otherwise
        it is a warning, and an error if nothing ever clears its gradients. Parameters that were
        unfrozen during the run are meant to train: an error. So are few parameters that fall
        through the groups of an optimizer with several, and a layer or the parameters of a loss
        that use what optimized layers computed, if nothing ever clears their gradients. Then it is
        a warning for an encoder without such evidence, if the rest of its model is trained. A
        network next to two optimizers that hold the same parameters is an error. So is one that was
        built like a network that is trained, starts with other weights and keeps its gradients.

        A model whose gradients a script assigns to copies, as to master weights in float32, is
        trained if its weights change. It is an error if they are the same in all captured steps.

    How to fix it:
        Create the optimizer when the model is complete, or add new parameters with
        `optimizer.add_param_group`. Freeze parameters that should not be trained with
        `requires_grad_(False)`: backward then does not compute their gradients.

    Fix safety:
        Unsafe: the parameters may be left out on purpose. The optimizer's line moves behind the
        line that made them, if both, or the calls that lead to them, are in one block; otherwise
        that line is followed by `optimizer.add_param_group(…)`. Where training replaces the model,
        `model = copy.deepcopy(best)` becomes `model.load_state_dict(best.state_dict())`, or the
        line that makes the optimizer is repeated behind it. `model.head.parameters()` becomes
        `model.parameters()` if these are all that the optimizer lacks. If it lacks a loss with
        parameters of its own, it becomes `[*model.parameters(), *criterion.parameters()]`, provided
        that one assignment above makes `criterion`. A sum, list or chain of parameters gets the
        missing ones; a list of groups gets a group with the optimizer's own options. `if
        p.requires_grad` is removed if the parameters are unfrozen later. If two optimizers
        hold the same module, the one that is named gets the missing module instead.

    When it may be wrong:
        If another optimizer that was not recorded holds them.

    Source:
        microsoft/nni issue 4521, Megatron-LM issue 174 and pytorch issue 14467: layers that were
        replaced or added after the optimizer was made. torch documentation, `torch.optim`,
        "Constructing it". Measured: of 99 healthy scripts (28 public cases, 30 of tests/programs,
        41 by another author) none has an untrained network in train mode without such a name.
    """

    code: ClassVar[str] = "GS205"
    name: ClassVar[str] = "parameter-not-in-optimizer"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_in_optimizer", worse="lower"),)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe",
        module="fixes.optimizers",
        fixes_notes=False,
        ends=JUDGING_ONE_OPTIMIZER,
    )

    most_share: float = 0.5
    """Share of the trained tensors, 0 to 1, below which an optimizer holds a deliberate selection.
    Source: linear probes and adapters hold a few tensors of many.
    """
    most_elements: float = 0.1
    """Share of the trained elements, 0 to 1: likewise. Source: training only biases and gains."""
    small_share: float = 0.2
    """Share of the trained tensors, 0 to 1, up to which the omitted ones count as few. Source: a
    head or a projection has a few tensors, a second network as many as the first.
    """
    most_times: float = 4.0
    """Number of elements of an omitted network, as a multiple of the trained ones. Chosen: a
    forgotten part is smaller than this; a model for which a prompt or a latent is trained is many
    times larger.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if context.probe_skip_reason(PROBE) is not None:
            return context.probe_skip_reason(PROBE)
        if not context.has_backward:
            return "no backward was recorded"
        return None if Optimizers(context).with_parameters else Optimizers(context).missing

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield findings for omitted parameters, by the certainty of a mistake."""
        left_out = LeftOut(context)
        groups: dict[tuple[Severity, bool], list[Part]] = {}
        unreturned: list[Part] = []
        for part in left_out.parts:
            if left_out.is_copy(part):
                continue
            if left_out.is_unreturned(part):
                unreturned.append(part)
                continue
            context.measured(
                self.code,
                "share_in_optimizer",
                left_out.held_share,
                self.most_share,
                subject=named([part]),
                site=part.site,
            )
            is_beside = left_out.is_of_another_network(part) and not left_out.is_starved
            late = left_out.is_late(part) and not is_beside
            severity = "error" if late else self._severity(left_out, part)
            groups.setdefault((severity, late), []).append(part)
        for (severity, late), parts in groups.items():
            yield self._finding(left_out, parts, severity=severity, late=late)
        if unreturned:
            yield self._without_return(left_out, unreturned)

    def _without_return(self, left_out: LeftOut, parts: list[Part]) -> Finding:
        context, optimizer = left_out.context, left_out.copied_by(parts[0])
        site = None if optimizer is None else optimizer.site
        parameters = sorted(index for part in parts for index in part.parameters)
        return self.finding(
            context,
            message=(
                f"{named(parts)} ({counted(len(parameters), 'parameter')}) never changes: "
                f"{'the optimizer' if optimizer is None else optimizer.class_name} steps copies, "
                "and nothing copies their values back"
            ),
            remedy="after each step, copy the stepped weights into the model under `no_grad`",
            site=site,
            parameters=parameters,
            evidence={"parameters_left_out": len(parameters), "returned": False},
            count=len(parameters),
        )

    def _severity(self, left_out: LeftOut, part: Part) -> Severity:
        # Signs that a part was forgotten come before those of a choice.
        if left_out.intent.was_unfrozen(part.parameters):
            return "error"
        if left_out.is_forgotten(part, self.most_times):
            is_kept = left_out.intent.is_never_cleared(part.parameters)
            return "error" if is_kept else "warning"
        is_selection = left_out.held_share < self.most_share and not left_out.splits_layers
        is_choice = is_selection or left_out.held_elements < self.most_elements
        is_other = left_out.is_network(part)
        is_sure = left_out.is_mistaken(part) or left_out.is_sibling(part)
        if is_sure or left_out.is_overlooked(part, self.small_share):
            return "error"
        if left_out.is_of_another_network(part) or left_out.is_before_all_trained(part):
            return "warning" if left_out.is_neglected(part) else "note"
        if is_choice or left_out.is_in_eval_mode(part) or (is_other and left_out.is_for_one_part):
            return "note"
        if part.module is None:
            return "error"
        if is_other and left_out.is_for_parts:
            return "warning"
        is_layer = left_out.is_unsorted(part) or left_out.is_kept_layer(part)
        is_few = left_out.share(part) <= self.small_share or is_layer
        return "error" if is_few and left_out.builds_on_held(part) else "warning"

    def _finding(
        self, left_out: LeftOut, parts: list[Part], *, severity: Severity, late: bool
    ) -> Finding:
        context, optimizer = left_out.context, left_out.chosen
        parameters = [index for part in parts for index in sorted(part.parameters)]
        several = len(parts) > 1 or (len(parameters) > 1 and parts[0].module is None)
        it, gets = ("them", "get") if several else ("it", "gets")
        what = named(parts)
        if any(part.module is not None for part in parts):
            what += f" ({counted(len(parameters), 'parameter')})"
        made = next((part.site for part in parts if part.site is not None), None)
        called = _caller(context, parts) if late else None
        # What a library makes is placed at the line that calls it.
        is_foreign = made is not None and context.recording.sites[made].is_installed
        chosen = optimizer.site if optimizer.given is None else optimizer.given
        lines = (
            (None if called is not None and is_foreign else made, "made here"),
            (called, "made in a call from here"),
            (optimizer.site, "the optimizer"),
            *_doubles(left_out, parts),
        )
        if late:
            chosen = optimizer.site
        is_moved = late and (left_out.is_replaced or _are_reparametrised(context, parts))
        site = made if chosen is None or is_moved else chosen
        return self.finding(
            context,
            message=(
                f"{what} {gets} a gradient, but {optimizer.class_name} was made before {it}: "
                f"no step changes {it}"
                if late
                else f"{what} {gets} a gradient but {'are' if several else 'is'} in no optimizer: "
                f"no step changes {it}{_grounds(left_out, parts, parameters)}"
            ),
            remedy=_remedy(severity, late=late),
            site=site,
            related=[context.related(one, text) for one, text in lines if one not in (None, site)],
            severity=severity,
            parameters=parameters,
            evidence={
                "parameters_left_out": len(parameters),
                "parameters_in_optimizer": len(left_out.optimizers.held),
                "share_in_optimizer": left_out.held_share,
                "made_after_optimizer": late,
                "unfrozen_later": left_out.intent.was_unfrozen(parameters),
                "never_cleared": left_out.intent.is_never_cleared(parameters),
            },
            count=len(parameters),
            # A model that replaced a trained one is reported with the steps without gradients.
            caused_by=() if late and not left_out.is_replaced else ("GS306",),
        )


def _are_reparametrised(context: RuleContext, parts: list[Part]) -> bool:
    """Return whether `torch.nn.utils` made parts of weights of layers, as `weight_norm` does."""
    records = [context.recording.parameters[one] for part in parts for one in part.parameters]
    return all(
        context.recording.modules[one.module].class_name == "ParametrizationList"
        or one.name.endswith(("weight_g", "weight_v"))
        for one in records
    )


def _doubles(left_out: LeftOut, parts: list[Part]) -> list[tuple[int | None, str]]:
    """Return the lines of further optimizers, one of which was meant for the parts."""
    if not any(map(left_out.is_mistaken, parts)):
        return []
    return [
        (one.site, "it holds the same")
        for one in left_out.optimizers.with_parameters
        if one is not left_out.chosen
    ]


def _caller(context: RuleContext, parts: list[Part]) -> int | None:
    """Return the line that called the function that made something, None if it is not known."""
    records = context.recording.parameters
    made = {records[index].module for part in parts for index in part.parameters}
    callers = context.recording.evidence_of(CallerRecord)
    return next((one.site for one in callers if one.module in made), None)


def _grounds(left_out: LeftOut, parts: list[Part], parameters: list[int]) -> str:
    """Return further evidence that they were meant to learn, as the end of a message."""
    if left_out.intent.was_unfrozen(parameters):
        return ", although training began to unfreeze them at some step"
    if any(map(left_out.is_mistaken, parts)):
        return ", while two optimizers hold the same parameters"
    if any(map(left_out.is_sibling, parts)):
        return ", while a network that is built alike is trained"
    if left_out.intent.is_never_cleared(parameters):
        return ", and nothing clears the gradients, which add up over all steps"
    return ""


def _remedy(severity: Severity, *, late: bool) -> str:
    if late:
        return "create the optimizer after the last change to the model, or use `add_param_group`"
    if severity == "note":
        return "if intended, freeze them with `requires_grad_(False)`, which saves their backward"
    return "add them to the optimizer, or freeze them with `requires_grad_(False)`"
