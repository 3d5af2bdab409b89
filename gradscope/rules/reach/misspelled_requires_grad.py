"""GS210: attributes that were meant to be `requires_grad`."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import ModuleFlagEvent, only
from gradscope.recording.evidence.parameters import AttributeRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class MisspelledRequiresGrad(Rule):
    """An attribute that looks like requires_grad was set, which freezes nothing.

    What it finds:
        `parameter.require_grad = False` and the like, and `requires_grad` set on a module, which
        has no such attribute: `module.requires_grad_(False)` is its method.

    Why it matters:
        Python accepts any attribute without an error. The parameters are trained although they
        should be frozen: a pretrained backbone drifts, and its gradients cost memory and time.

    How it is measured:
        The rule compares the names of boolean attributes of the model's parameters and modules with
        `requires_grad`: a similarity of at least 85 % counts. Only those count whose value is not
        what `requires_grad` of the parameters says. Of a module they do not count where its class
        reads the attribute itself. In a run, modules are looked at between steps, too.

    How to fix it:
        Write `requires_grad = False` of a parameter, or `module.requires_grad_(False)`.

    When it may be wrong:
        If code outside the module's class reads the attribute as a setting of its own.

    Source:
        torch documentation, `torch.nn.Module.requires_grad_`; pytorch forum, "Parameters with
        requires_grad = False are updated during training".
    """

    code: ClassVar[str] = "GS210"
    name: ClassVar[str] = "misspelled-requires-grad"
    level: ClassVar[Severity] = "warning"
    explains: ClassVar[tuple[str, ...]] = ("GS205",)
    needs: ClassVar[Needs] = (probe_ran("attributes"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every name."""
        for record in context.recording.evidence_of(AttributeRecord):
            if record.sites or not record.modules:
                yield self._finding(context, record)

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every value that modules got after the captured steps."""
        known = {
            record.value
            for captured in context.recording.captured_steps
            for record in captured.recording.evidence_of(AttributeRecord)
            if record.modules
        }
        for event in only(ModuleFlagEvent, context.shared(Windows).events):
            if bool(event.value) in known:
                continue
            does, state = ("unfreezes", "frozen") if event.value else ("freezes", "trained")
            count = int(event.parameters or 0)
            yield self.finding(
                context,
                message=(
                    f"`requires_grad = {bool(event.value)}` on "
                    f"{counted(int(event.modules or 0), 'module')} of {event.subject} {does} "
                    f"nothing: {counted(count, 'parameter')} {'is' if count == 1 else 'are'} still "
                    f"{state}"
                ),
                remedy=f"write `requires_grad_({bool(event.value)})`, a method of the module",
                site=event.site,
                evidence={"attribute": "requires_grad", "parameters_contradicted": count},
                count=count,
            )

    def _finding(self, context: RuleContext, record: AttributeRecord) -> Finding:
        made = context.recording.parameters[record.parameters[0]].site
        does = "unfreezes" if record.value else "freezes"
        state = "frozen" if record.value else "trained"
        what, verb = counted(len(record.parameters), "parameter"), "is"
        if len(record.parameters) > 1:
            verb = "are"
        return self.finding(
            context,
            message=(
                f"`{record.name} = {record.value}` on {_where(context, record)} {does} nothing: "
                f"{what} {verb} still {state}"
            ),
            remedy=(
                f"write `requires_grad_({record.value})`, a method of the module"
                if record.modules
                else f"write `requires_grad = {record.value}`"
            ),
            site=record.sites[0] if record.sites else made,
            related=[context.related(site, "and here") for site in record.sites[1:]],
            parameters=record.parameters,
            evidence={"attribute": record.name, "parameters_contradicted": len(record.parameters)},
            count=len(record.parameters),
        )


def _where(context: RuleContext, record: AttributeRecord) -> str:
    if not record.modules:
        names = [context.recording.parameters[index].name for index in record.parameters]
    else:
        names = [path or "the model" for path in record.modules]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
