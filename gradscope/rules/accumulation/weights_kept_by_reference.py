"""GS322: averages and kept states that share the memory of the weights."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import SharedWeightsEvent, only
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
