"""GS503: a write into a tensor that backward still needs."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.recording_index import ended_by
from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.autograd_errors import (
    errors_of,
    evidence_of,
    first_line,
    operation_of,
    related_to,
    site_of,
)
from gradscope.rules.rule import Rule

_STEP = "step"
"""Operation with which an optimizer writes to its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlaceModification(Rule):
    """A tensor that backward needs is overwritten in place.

    What it finds:
        In-place writes, such as `x += 1`, `x[:, 0] = 0`, `x.mul_(2)`, `F.relu(x, inplace=True)`, or
        an optimizer's step, to a tensor that an earlier operation has saved for its backward. Also
        writes that autograd rejects at once: to a parameter, or to one of several views.

    Why it matters:
        `backward()` raises "one of the variables needed for gradient computation has been modified
        by an inplace operation", and names neither the write nor the operation.

    How it is measured:
        The operation whose backward raised is known, and so are all writes of the forward. The rule
        looks for the first write after that operation, by the versions in torch's message and the
        tensor's shape. There is no threshold.

    How to fix it:
        Compute a new tensor instead: `x = x + 1`, `torch.where(mask, 0, x)`, `inplace=False`. Or
        write into a `clone()`.

    Fix safety:
        Safe. `x += y` becomes `x = x + y`, `x.mul_(y)` becomes `x = x.mul(y)`, `z = x.mul_(y)`
        becomes `z = x.mul(y)` where `x` is not used again, `inplace=True` is removed, and
        `x = x.clone()` is inserted before an assignment to elements. No edit if `x` may be a part
        of another tensor. A loss whose backward follows another optimizer's step is computed behind
        that step.

    When it may be wrong:
        Autograd itself reports that a tensor was overwritten. If several tensors of one shape were
        written equally often, the line may be that of another.

    Source:
        torch documentation, "Autograd mechanics": "In-place operations with autograd" and "In-place
        correctness checks".
    """

    code: ClassVar[str] = "GS503"
    name: ClassVar[str] = "in-place-modification"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a tensor that was overwritten."""
        for record in errors_of(context, "in-place"):
            site = site_of(record, "write", "forward", "call")
            operation = operation_of(context, record)
            yield self.finding(
                context,
                message=_message(record, operation),
                remedy=_remedy(record),
                site=site,
                related=related_to(
                    context,
                    record,
                    site,
                    forward=f"{operation} saves it for its backward here",
                    call="backward is called here",
                ),
                severity="error" if ended_by(context.recording) is record else "warning",
                evidence=evidence_of(record),
                step=record.step,
            )


def _message(record: AutogradErrorRecord, operation: str) -> str:
    # autograd rejects a write to a leaf or to one of several views when it happens, before any
    # backward and any node.
    if record.node is None:
        return f"autograd rejects an in-place write: {first_line(record)}"
    write = record.location("write")
    if write is None:
        return f"what {operation} saved for its backward is overwritten in place"
    return f"{_spoken(write.operation)} overwrites what {operation} saved for its backward"


def _spoken(operation: str) -> str:
    if operation == "__setitem__":
        return "an assignment to elements"
    if operation == _STEP:
        return "an optimizer's step()"
    return f"{operation}()" if operation.endswith("_") else f"{operation}(inplace=True)"


def _remedy(record: AutogradErrorRecord) -> str:
    write = record.location("write")
    if write is not None and write.operation == _STEP:
        return "call this backward() before the step, or recompute its loss after it"
    if write is not None and write.operation and not write.operation.endswith("_"):
        return "remove inplace=True"
    if write is not None and write.operation == "__setitem__":
        return "create a new tensor with torch.where or masked_fill, or write into x.clone()"
    if record.node is None:
        return "compute a new tensor, or write under torch.no_grad() if it is not part of the model"
    return "compute a new tensor, such as x = x + y for x += y, or write into x.clone()"
