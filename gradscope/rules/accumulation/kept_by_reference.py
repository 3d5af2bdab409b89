"""GS322 and GS323: weights and gradients that are kept, and share the memory of the live ones."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import BackwardEvent, KeptGradientsEvent, SharedWeightsEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_step
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsKeptByReference(Rule):
    """A moving average or a kept state of the weights is no copy, so it always equals them.

    What it finds:
        A moving average that begins with `p.data`, with `state_dict()` or with the model itself
        instead of a copy. A state that is kept by `best = model.state_dict()` and restored after
        further steps. And `target = network`, which is no second network: the state that it takes
        over by `target.load_state_dict(network.state_dict())` is its own.

    Why it matters:
        `state_dict()` and `.data` return tensors that share the memory of the weights. The average
        is an average of the weights with themselves: an evaluation with it shows the weights as
        they are. `average.mul_(d).add_(p, alpha=1 - d)` even shrinks the weights in every step.
        A restored state is that of the last step, not the best one. A target network moves with
        every step of the network, and synchronising the two does nothing.

    How it is measured:
        In captured steps the rule follows sums of multiples of tensors that are computed outside of
        the graph. It reports a line that averages the weights of an optimizer with their own
        memory: `lerp_` towards itself, `mul_(d)` and then `add_` of `1 - d` times itself, or a
        write of such a sum. It does not report a line that averages any other tensor, too, as of a
        target network that shares a part with the model. A restored state is reported if all of its
        weights have the memory of the module that restores them, and an optimizer has made a step
        since `state_dict()` returned them. A target is reported if a line loads the state of one
        module into another that has the same memory.

    How to fix it:
        Copy what is kept: `{name: value.clone() for name, value in model.state_dict().items()}`, or
        `copy.deepcopy(model)`.

    When it may be wrong:
        If a state is restored only to check that this works.

    Source:
        torch documentation, `torch.nn.Module.state_dict`: the tensors are references to the
        parameters; "Saving and Loading Models", on `best_model_state = deepcopy(…)`.
    """

    code: ClassVar[str] = "GS322"
    name: ClassVar[str] = "weights-kept-by-reference"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS212", "GS318")
    needs: ClassVar[Needs] = (has_step,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that averages or restores what it never copied."""
        for event in only(SharedWeightsEvent, context.shared(Windows).events):
            name = f"{event.subject} " if event.subject else "what is kept "
            weights = counted(event.parameters, "weight")
            remedy = "keep a copy: value.clone() for each tensor, or copy.deepcopy"
            if event.same:
                told = (
                    f"{name}is no copy: it shares {weights} with the network whose state it takes "
                    "over, so each step moves both"
                )
                remedy = "make a copy: copy.deepcopy(…), or a second network of the class"
            elif event.restored:
                told = (
                    f"{name}shares the memory of {weights}: {counted(event.steps, 'step')} later, "
                    "restoring it changes nothing"
                )
            else:
                told = f"{name}shares the memory of {weights}, which are averaged with themselves"
                if event.factor is not None and event.factor < 1:
                    told += f": each time they are multiplied by {short(event.factor, 6)}"
            yield self.finding(
                context,
                message=told,
                remedy=remedy,
                site=event.site,
                evidence={"parameters": event.parameters, "restored": event.restored},
                count=event.parameters,
                step=event.step,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsKeptByReference(Rule):
    """The gradients of several losses are kept by reference, so all are those of the last one.

    What it finds:
        `[p.grad for p in parameters]` after each of several backward passes, as in gradient surgery
        and in a comparison of tasks, where `.grad` stays the same tensor: with
        `zero_grad(set_to_none=False)`, or without any zero_grad in between.

    Why it matters:
        zero_grad and backward write into the tensors that were kept. All collections hold what the
        last backward left: projections, differences and averages of the tasks' gradients are wrong,
        and no exception is raised.

    How it is measured:
        In captured steps, the rule looks for lists and dicts that hold a parameter's gradient. It
        is found if one was filled between two backward passes of a step, the second of these wrote
        to the same tensor, and the script then uses it while another collection, filled later,
        holds it too, in two steps at least. A list that was made before the step, or one that the
        next one replaces, is fine.

    How to fix it:
        Keep copies: `[p.grad.clone() for p in parameters]`, or call `torch.autograd.grad`.

    When it may be wrong:
        If the later collection is only a second list of what the earlier one holds on purpose.

    Source:
        torch documentation, "Autograd mechanics", on accumulation in place into `.grad`;
        `torch.optim.Optimizer.zero_grad`, on `set_to_none`.
        Yu et al. 2020, "Gradient Surgery for Multi-Task Learning" (arXiv 2001.06782).
    """

    code: ClassVar[str] = "GS323"
    name: ClassVar[str] = "gradients-kept-by-reference"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        has_backward = any(only(BackwardEvent, context.shared(Windows).events))
        return None if has_backward else "no backward was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that uses such collections."""
        for event in only(KeptGradientsEvent, context.shared(Windows).events):
            yield self.finding(
                context,
                message=(
                    "gradients are collected by reference after several backward passes: all "
                    f"{event.collections:,} collections hold those of the last one"
                ),
                remedy="keep copies: [p.grad.clone() for p in parameters]",
                site=event.site,
                evidence={"collections": event.collections, "limit": 1},
                count=event.collections,
                step=event.step,
            )
