"""GS504: backward from a tensor of more than one element."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.autograd_errors import errors_of, evidence_of, related_to, site_of
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NonScalarBackward(Rule):
    """The loss is not a scalar, and backward gets no gradient to start from.

    What it finds:
        A loss of any other number of elements than one: a loss function with `reduction="none"`, or
        a mean over some dimensions only.

    Why it matters:
        `backward()` raises "grad can be implicitly created only for scalar outputs": the gradient
        of several numbers is only defined for one weighting of them.

    How it is measured:
        By the shape of the loss. There is no threshold.

    How to fix it:
        Reduce the loss by `.mean()` or `.sum()`, after weighting or masking its elements; or give
        backward the weights, as `loss.backward(gradient=weights)`.

    When it may be wrong:
        Never: autograd refuses it. A vector for a vector-Jacobian product is given by
        `--grad-output`.

    Source:
        torch documentation, `torch.Tensor.backward` and `torch.autograd.backward`.
    """

    code: ClassVar[str] = "GS504"
    name: ClassVar[str] = "non-scalar-backward"
    level: ClassVar[Severity] = "error"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a loss that is not one number."""
        for record in errors_of(context, "non-scalar"):
            site = site_of(record, "forward", "call")
            dims = _dims(context, record)
            shape = "" if dims is None else f" of shape [{', '.join(map(str, dims))}]"
            subject = record.subject or "the tensor that backward is called on"
            yield self.finding(
                context,
                message=f"{subject} is a tensor{shape}: backward needs a scalar",
                remedy="reduce it with .mean() or .sum()",
                site=site,
                related=related_to(context, record, site, call="backward is called here"),
                evidence={
                    **evidence_of(record),
                    "shape": None if dims is None else "x".join(map(str, dims)) or "scalar",
                },
            )


def _dims(context: RuleContext, record: AutogradErrorRecord) -> tuple[int, ...] | None:
    if record.node is None:
        return None
    outputs = context.recording.nodes[record.node].outputs
    return outputs[0].dims if len(outputs) == 1 and outputs[0] is not None else None
