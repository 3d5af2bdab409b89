"""GS205: parameters with a gradient that no optimizer ever steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from gradscope.analysis.intent import Intent, is_named_fixed
from gradscope.analysis.model_parts import Part, Subtrees, named
from gradscope.phrasing import counted
from gradscope.recording.evidence.parameters import CallerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.optimizers import PROBE, Optimizers
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_NORMALISING = ("Clamp", "Div", "Expand", "LinalgVectorNorm", "Norm")
"""Prefixes of operations by which a parameter is divided by its norm."""


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
        like a choice. In a training run, all optimizers that ever step count, parameters that move
        count as trained, and first layers are notes.

        A separate network in a training run is either a decoder that was forgotten, or a judge that
        should stay fixed. It is a note if there is evidence for a judge: loaded weights, eval mode,
        a name such as `teacher`, or more than `most_times` the elements that are trained. Otherwise
        it is a warning, and an error if nothing ever clears its gradients. Parameters that were
        unfrozen during the run are meant to train: an error. So are few parameters that fall
        through the groups of an optimizer with several, and whose gradients nothing ever clears.

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
        `model.parameters()` if these are all that the optimizer lacks. A sum, list or chain of
        parameters gets the missing ones; a list of groups gets a group with the optimizer's own
        options. `if p.requires_grad` is removed if the parameters are unfrozen later.

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
    fix: ClassVar[FixRule | None] = FixRule(safety="unsafe", needs_one_optimizer=("GS708", "GS710"))

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
        return None if Optimizers(context).holders else Optimizers(context).missing

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield findings for omitted parameters, by the certainty of a mistake."""
        left_out = _LeftOut(context)
        groups: dict[tuple[Severity, bool], list[Part]] = {}
        for part in left_out.parts:
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

    def _severity(self, left_out: "_LeftOut", part: Part) -> Severity:
        if left_out.intent.was_unfrozen(part.parameters):
            return "error"
        if left_out.is_forgotten(part, self.most_times):
            is_kept = left_out.intent.is_never_cleared(part.parameters)
            return "error" if is_kept else "warning"
        is_choice = (
            left_out.held_share < self.most_share or left_out.held_elements < self.most_elements
        )
        is_other = left_out.is_network(part)
        if left_out.is_overlooked(part, self.small_share):
            return "error"
        if left_out.is_of_another_network(part) or left_out.is_before_all_trained(part):
            return "note"
        if is_choice or left_out.is_in_eval_mode(part) or (is_other and left_out.is_for_one_part):
            return "note"
        if part.module is None:
            return "error"
        if is_other and left_out.is_for_parts:
            return "warning"
        is_few = left_out.share(part) <= self.small_share or left_out.is_unsorted(part)
        return "error" if is_few and left_out.builds_on_held(part) else "warning"

    def _finding(
        self, left_out: "_LeftOut", parts: list[Part], *, severity: Severity, late: bool
    ) -> Finding:
        context, optimizer = left_out.context, left_out.optimizers.holders[0]
        parameters = [index for part in parts for index in sorted(part.parameters)]
        several = len(parts) > 1 or (len(parameters) > 1 and parts[0].module is None)
        it, gets = ("them", "get") if several else ("it", "gets")
        what = named(parts)
        if any(part.module is not None for part in parts):
            what += f" ({counted(len(parameters), 'parameter')})"
        made = next((part.site for part in parts if part.site is not None), None)
        called = _caller(context, parts) if late else None
        is_foreign = made is not None and context.recording.sites[made].is_installed
        lines = (
            (None if called is not None and is_foreign else made, "made here"),
            (called, "made in a call from here"),
            (optimizer.site, "the optimizer"),
        )
        site = made if optimizer.site is None or (late and left_out.is_replaced) else optimizer.site
        return self.finding(
            context,
            message=(
                f"{what} {gets} a gradient, but {optimizer.class_name} was made before {it}: "
                f"no step changes {it}"
                if late
                else f"{what} {gets} a gradient but {'are' if several else 'is'} in no optimizer: "
                f"no step changes {it}{_grounds(left_out, parameters)}"
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


def _caller(context: RuleContext, parts: list[Part]) -> int | None:
    """Return the line that called the function that made something, None if it is not known."""
    records = context.recording.parameters
    made = {records[index].module for part in parts for index in part.parameters}
    callers = context.recording.evidence_of(CallerRecord)
    return next((one.site for one in callers if one.module in made), None)


def _grounds(left_out: "_LeftOut", parameters: list[int]) -> str:
    """Return further evidence that they were meant to learn, as the end of a message."""
    if left_out.intent.was_unfrozen(parameters):
        return ", although training began to unfreeze them at some step"
    if left_out.intent.is_never_cleared(parameters):
        return ", and nothing clears the gradients, which add up over all steps"
    return ""


def _remedy(severity: Severity, *, late: bool) -> str:
    if late:
        return "create the optimizer after the last change to the model, or use `add_param_group`"
    if severity == "note":
        return "if intended, freeze them with `requires_grad_(False)`, which saves their backward"
    return "add them to the optimizer, or freeze them with `requires_grad_(False)`"


@dataclass(frozen=True)
class _LeftOut:
    """What gets a gradient and is in no optimizer."""

    context: RuleContext

    @cached_property
    def optimizers(self) -> Optimizers:
        return Optimizers(self.context)

    @property
    def intent(self) -> Intent:
        return self.context.shared(Intent)

    def is_forgotten(self, part: Part, most_times: float) -> bool:
        """Return whether a part is a network of a run that nothing marks as fixed."""
        if self.context.run is None or part.module is None or not self.is_network(part):
            return False
        networks = [one for one in self._parts_held if one.module is not None]
        if not any(self.is_network(one) for one in networks) or not self.builds_on_held(part):
            return False
        sizes = {p.index: p.numel for p in self.context.recording.parameters}
        trained = sum(sizes[p] for one in networks for p in one.parameters)
        is_large = sum(sizes[p] for p in part.parameters) > most_times * trained
        is_fixed = self.is_in_eval_mode(part) or self.intent.is_loaded(part.module)
        return not (is_large or is_fixed or is_named_fixed([part.name]))

    def is_overlooked(self, part: Part, small_share: float) -> bool:
        """Return whether a small part of a run's model falls through its optimizer's groups.

        Whoever sorts parameters into groups means them all, and clears what is left out on purpose.
        """
        is_kept = self.intent.is_never_cleared([p for one in self.parts for p in one.parameters])
        is_small = sum(map(self.share, self.parts)) <= small_share
        return self.is_grouped and is_kept and is_small and not self._is_fixed(part)

    def is_unsorted(self, part: Part) -> bool:
        """Return whether a layer's parameters fall through the groups of an optimizer."""
        return self.is_grouped and not self.is_network(part) and not self._is_fixed(part)

    @cached_property
    def is_grouped(self) -> bool:
        """Return whether an optimizer has several groups, into which parameters were sorted."""
        return any(len(record.groups) > 1 for record in self.optimizers.holders)

    def _is_fixed(self, part: Part) -> bool:
        """Return whether anything tells that a part is to stay as it is."""
        is_loaded = part.module is not None and self.intent.is_loaded(part.module)
        return is_loaded or self.is_in_eval_mode(part) or is_named_fixed([part.name])

    @cached_property
    def trained(self) -> frozenset[int]:
        stats = self.context.first.parameter_stats.values()
        return frozenset(s.parameter for s in stats if s.reach in ("gradient", "zero"))

    @cached_property
    def _subtrees(self) -> Subtrees:
        return Subtrees(self.context.recording)

    @cached_property
    def _parts_held(self) -> tuple[Part, ...]:
        trainable = {p.index for p in self.context.recording.parameters if p.requires_grad}
        return self._subtrees.parts(trainable & self.optimizers.held)

    @property
    def is_for_parts(self) -> bool:
        """Return whether all that is held makes up whole modules."""
        return all(part.module is not None for part in self._parts_held)

    @property
    def is_for_one_part(self) -> bool:
        """Return whether the optimizer was given one of several networks, such as an actor."""
        return self.is_for_parts and len(self._parts_held) == 1

    def is_network(self, part: Part) -> bool:
        """Return whether a part is more than a layer, as a critic is and a head mostly is not."""
        records = (self.context.recording.parameters[index] for index in part.parameters)
        return part.module is not None and sum(len(r.shape.dims) > 1 for r in records) > 1

    @cached_property
    def held_share(self) -> float:
        held = len(self.trained & self.optimizers.held)
        return held / len(self.trained | self.optimizers.held)

    @cached_property
    def held_elements(self) -> float:
        held, trained = self.optimizers.held, self.trained | self.optimizers.held
        sizes = {p.index: p.numel for p in self.context.recording.parameters}
        return sum(sizes[p] for p in held) / max(1, sum(sizes[p] for p in trained))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        records = self.context.recording.parameters
        trainable = {record.index for record in records if record.requires_grad}
        parts = self._subtrees.parts(trainable - self.optimizers.held)
        run = self.context.run
        moved = frozenset[int]() if run is None else run.moved
        return tuple(
            part
            for part in parts
            if part.parameters & self.trained and part.parameters.isdisjoint(moved)
        )

    def is_of_another_network(self, part: Part) -> bool:
        """Return whether no optimizer of a run holds anything of a part's network, but others.

        Where optimizers hold nothing that learns, it is the network that they were meant for.
        """
        run = self.context.run
        if run is None or part.module is None or not self.is_network(part):
            return False
        if run.held.isdisjoint(run.learning):
            return False
        modules = self.context.recording.modules
        models = [one for one in self._subtrees.lineage(part.module) if modules[one].path]
        return all(self._subtrees.trainable[one].isdisjoint(self.optimizers.held) for one in models)

    def is_before_all_trained(self, part: Part) -> bool:
        """Return whether a run trains nothing that a part builds on, as a probed backbone."""
        run = self.context.run
        is_other_trained = run is not None and not run.held.isdisjoint(run.learning)
        return is_other_trained and not self.builds_on_held(part)

    @cached_property
    def is_starved(self) -> bool:
        """Return whether nothing that optimizers hold gets a gradient, as of a replaced model."""
        return self.trained.isdisjoint(self.optimizers.held)

    @cached_property
    def is_replaced(self) -> bool:
        """Return whether what optimizers hold was trained before, and gets no gradient now."""
        run = self.context.run
        was_trained = run is None or not run.learning.isdisjoint(self.optimizers.held)
        return self.is_starved and was_trained

    def is_late(self, part: Part) -> bool:
        return all(part.parameters <= set(record.later) for record in self.optimizers.holders)

    def is_in_eval_mode(self, part: Part) -> bool:
        owners = {self.context.recording.parameters[index].module for index in part.parameters}
        is_training = any(self.context.recording.modules[owner].training for owner in owners)
        return self.context.recording.target.mode == "train" and not is_training

    def share(self, part: Part) -> float:
        return len(part.parameters) / max(1, len(self.trained))

    def builds_on_held(self, part: Part) -> bool:
        """Return whether a part's input comes from parameters that the optimizer holds."""
        nodes = self.context.parameter_nodes
        held = {nodes[index] for index in self.optimizers.held if index in nodes}
        waiting = self._meetings([nodes[index] for index in part.parameters if index in nodes])
        seen = set(waiting)
        while waiting:
            for ref in self.context.successors.get(waiting.pop(), ()):
                if ref.node in held:
                    return True
                if ref.node not in seen:
                    seen.add(ref.node)
                    waiting.append(ref.node)
        return False

    def _meetings(self, starts: list[int]) -> list[int]:
        """Return the operations at which parameters, as they are or normalised, meet others."""
        own, waiting, found = set(starts), list(starts), set[int]()
        while waiting:
            for user in self.context.users.get(waiting.pop(), ()):
                node = self.context.recording.nodes[user]
                if node.kind != "view" and not node.operation.startswith(_NORMALISING):
                    found.add(user)
                elif user not in own:
                    own.add(user)
                    waiting.append(user)
        return sorted(found)
