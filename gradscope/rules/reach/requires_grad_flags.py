"""GS209 and GS210: `requires_grad` of the input, and names that are nearly `requires_grad`."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import ModuleFlagEvent, only
from gradscope.recording.evidence.parameters import AttributeRecord, LeafRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequiresGrad(Rule):
    """A tensor of the batch requires grad, but nothing reads its gradient.

    What it finds:
        Tensors of the batch that require grad and are leaves of the graph, if the forward itself
        computes no gradient.

    Why it matters:
        Backward goes on through the first layer to the data and keeps a gradient as large as the
        batch: wasted time and memory, which add up over steps as the gradient accumulates.

    How it is measured:
        By the leaves of the first graph; there is no threshold. The rule skips inputs with a hook,
        inputs that an optimizer holds, models of which no parameter gets a gradient, and forwards
        that call `torch.autograd.grad` or `backward` themselves, as gradient penalties do. In a
        script, the rule finds the variables that hold such inputs. It skips them if any calling
        code reads
        `.grad` of anything but a parameter, or uses hooks or `torch.autograd`. It must show in half
        of the captured steps.

    How to fix it:
        Remove `requires_grad=True` from the line that makes the batch.

    When it may be wrong:
        If the gradient is read after backward, such as for saliency maps or adversarial examples.

    Source:
        torch documentation, "Autograd mechanics": setting requires_grad.
    """

    code: ClassVar[str] = "GS209"
    name: ClassVar[str] = "input-requires-grad"
    level: ClassVar[Severity] = "note"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "on"
    needs: ClassVar[Needs] = (probe_ran("leaves"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding for all such inputs."""
        leaves = [
            leaf for leaf in context.recording.evidence_of(LeafRecord) if leaf.origin == "input"
        ]
        if not leaves or not context.shared(Reach).learning:
            return
        names = [leaf.name for leaf in leaves]
        elements = sum(leaf.numel for leaf in leaves)
        # Nodes are recorded from the loss on: the last one is the first operation of the forward.
        users = sorted(context.consumers(leaves[0].node), key=lambda node: -node.index)
        site = next((user.site for user in users if user.site is not None), None)
        site = site if leaves[0].site is None else leaves[0].site
        verb, its = ("requires", "its") if len(names) == 1 else ("require", "their")
        yield self.finding(
            context,
            message=(
                f"{', '.join(names)} {verb} grad, and nothing reads {its} gradient of "
                f"{elements:,} elements"
            ),
            remedy=remedy_at(None if site is None else context.recording.sites[site]),
            site=site,
            names=names,
            evidence={"tensors": len(leaves), "elements": elements},
            count=len(leaves),
        )


def remedy_at(site: Site | None) -> str:
    """Return what to remove: the call on the line that sets it, if it is there."""
    if site is not None and ".requires_grad_(" in site.source:
        return "remove `.requires_grad_()`"
    return "remove `requires_grad=True` where the batch is made"
