"""GS209: an input that requires grad for nothing."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.evidence.parameters import LeafRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


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
