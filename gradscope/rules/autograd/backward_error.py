"""GS506: an exception in backward."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.recording_index import ended_by
from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.autograd_errors import (
    errors_of,
    evidence_of,
    first_line,
    operation_of,
    related_to,
    site_of,
)
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardError(Rule):
    """Backward raised an exception.

    What it finds:
        Every exception in backward that no other rule covers: an error in the backward of a custom
        function or in a hook, gradients of a wrong shape or number, or memory that runs out.

    Why it matters:
        The traceback ends in torch's engine, and does not tell which operation of the forward it
        was.

    How it is measured:
        The operation whose gradient was delivered last is the one whose backward raised; autograd's
        order tells the line that made it. There is no threshold.

    How to fix it:
        Fix the line that raised. A custom backward returns one gradient per input of its forward,
        each of the input's shape, and None for inputs that need none.

    When it may be wrong:
        If backward runs in several threads, one per device, another operation may have been the
        last.

    Source:
        torch documentation, "Extending torch.autograd" and "Backward hooks execution".
    """

    code: ClassVar[str] = "GS506"
    name: ClassVar[str] = "backward-error"
    level: ClassVar[Severity] = "error"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for an exception."""
        for record in errors_of(context, "other"):
            site = site_of(record, "inside", "forward", "call")
            operation = operation_of(context, record)
            where = f" in {operation}" if operation else ""
            yield self.finding(
                context,
                message=f"backward raised {record.exception}{where}: {first_line(record)}",
                remedy=_remedy(record),
                site=site,
                related=related_to(
                    context,
                    record,
                    site,
                    forward=f"{operation} was called here",
                    call="backward is called here",
                ),
                parameters=_parameter(context, record),
                # The judged step is the target's own. An error of a further step comes of a loop
                # that is not the target's.
                severity="error" if ended_by(context.recording) is record else "warning",
                evidence=evidence_of(record),
                step=record.step,
            )


def _parameter(context: RuleContext, record: AutogradErrorRecord) -> tuple[int, ...]:
    """Return the parameter that the gradient was computed for."""
    parameter = None if record.node is None else context.recording.nodes[record.node].parameter
    return () if parameter is None else (parameter,)


def _remedy(record: AutogradErrorRecord) -> str:
    # torch's message for `autograd.grad` of an input that the loss does not depend on.
    if "not have been used in the graph" in record.message:
        return "compute the loss from that tensor, or pass allow_unused=True"
    if record.function is not None:
        return (
            f"let {record.function}.backward return one gradient per input of its forward, each of "
            "the input's shape"
        )
    if record.location("inside") is not None:
        return "fix this line, which backward runs: a hook returns a gradient or None"
    return "check the shapes and dtypes of this operation's inputs"
