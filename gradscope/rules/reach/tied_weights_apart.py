"""GS213: two parameters that were meant as one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.evidence.parameters import TwinRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWeightsApart(Rule):
    """Two parameters that should be tied get separate gradients.

    What it finds:
        Two `nn.Parameter` objects over the same memory, as `a.weight.data = b.weight.data` leaves
        them; or an output layer that holds a copy of an embedding's numbers.

    Why it matters:
        Tied weights are one parameter, whose gradient is the sum over its uses. If they are tied
        through `.data`, the optimizer updates the same numbers twice, each time with a part of the
        gradient and a separate state, and `.to(device)` separates them. A copy is not tied at all:
        both differ after the first step.

    How it is measured:
        Parameters that require grad and get a gradient, by the address of their elements; and
        weights of `nn.Embedding` and `nn.Linear` that are equal in shape and in every element, and
        not constant. Other layers that start equal are left alone, as copies of a layer do. There
        is no threshold.

    How to fix it:
        Give both modules the same object: `head.weight = embedding.weight`.

    When it may be wrong:
        If the output layer is only initialised from the embedding and should differ later.

    Source:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models"; torch
        documentation, `named_parameters(remove_duplicate=True)`: shared parameters are one object.
    """

    code: ClassVar[str] = "GS213"
    name: ClassVar[str] = "tied-weights-apart"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return context.probe_skip_reason("twins")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every pair."""
        for twin in context.recording.evidence_of(TwinRecord):
            if twin.alike == "target":
                continue  # only one of them is trained
            first, second = (context.recording.parameters[i] for i in (twin.first, twin.second))
            shares = twin.alike == "storage"
            position = second.site if twin.site is None else twin.site
            yield self.finding(
                context,
                message=(
                    f"{first.name} and {second.name} share memory but are two parameters: "
                    "each gets only a part of the gradient"
                    if shares
                    else f"{second.name} is a copy of {first.name}: each gets its own gradient, "
                    "and they drift apart"
                ),
                remedy="tie the parameters: " + _tie(first.name, second.name),
                site=position,
                related=[
                    context.related(record.site, f"{record.name} is made here")
                    for record in (first, second)
                    if record.site != position
                ],
                parameters=(twin.first, twin.second),
                evidence={
                    "alike": twin.alike,
                    "first_gradient_norm": _norm(context, twin.first),
                    "second_gradient_norm": _norm(context, twin.second),
                },
                count=2,
            )


def _tie(first: str, second: str) -> str:
    return f"`model.{second} = model.{first}`"


def _norm(context: RuleContext, parameter: int) -> float | None:
    stat = context.parameter_stat(parameter)
    return None if stat is None or stat.gradient is None else stat.gradient.norm
