"""GS330: weight decay that shrinks the weights to nothing within a few steps."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short
from gradscope.recording.evidence.training import GroupRecord, OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.rule import Rule

_LEAST_MATRICES = 2
"""Number of weight matrices of a network; a single one may be a ridge regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayDominates(Rule):
    """Weight decay is so large that it halves the weights within a few steps.

    What it finds:
        `SGD(…, lr=0.1, momentum=0.9, weight_decay=0.5)` where 5e-4 was meant, or `AdamW` with a
        weight decay of 10.

    Why it matters:
        The weights forget within a few steps what the gradients taught them. A deep network shrinks
        until its output hardly depends on its input, and the loss stays high.

    How it is measured:
        The share of a weight that a step removes: learning rate times weight decay, for SGD over
        1 - momentum. AdamW and SGD are judged, for groups of two or more trained weight matrices.
        It is found from `share` on. `Adam` divides its decay by the size of the gradients, and is
        left alone.

    How to fix it:
        Lower the weight decay: 1e-4 to 5e-4 are usual for SGD, 0.01 to 0.1 for AdamW.

    When it may be wrong:
        If the model is a regression that is meant to be penalised so much.

    Source:
        Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization" (arXiv 1711.05101).
        D'Angelo et al. 2024, "Why Do We Need Weight Decay in Modern Deep Learning?"
        (arXiv 2310.04415), for usual values.
    """

    code: ClassVar[str] = "GS330"
    name: ClassVar[str] = "decay-dominates"
    level: ClassVar[Severity] = "warning"

    share: float = 0.02
    """Share of a weight, 0 to 1, that a step removes: half of it in 34 steps. Chosen: four times
    that of the largest usual values, a learning rate of 1 with 5e-4 and a momentum of 0.9."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return Optimizers(context).skip_reason()

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer with such a group."""
        optimizer = Optimizers(context).targets
        groups = () if optimizer is None else optimizer.groups
        judged = [one for one in groups if _matrices(context, one) >= _LEAST_MATRICES]
        removed = {index: _removed(optimizer, one) for index, one in enumerate(judged)}
        if optimizer is None or not removed:
            return
        index = max(removed, key=lambda one: removed[one])
        share, group = removed[index], judged[index]
        context.measured(
            self.code, "removed_share", share, self.share, subject=optimizer.class_name
        )
        if share < self.share:
            return
        loss_text = f"removes {short(100 * share, 2)} % of the weights in each step"
        momentum = f" and a momentum of {literal(group.momentum)}" if group.momentum else ""
        steps = math.ceil(math.log(2) / -math.log1p(-share)) if share < 1 else 1
        yield self.finding(
            context,
            message=(
                f"a weight decay of {literal(group.weight_decay or 0.0)} at a learning rate of "
                f"{literal(group.learning_rate or 0.0)}{momentum} {loss_text}: half of them in "
                f"{steps} step{'' if steps == 1 else 's'}"
            ),
            remedy="lower the weight decay: "
            + ("1e-4 to 5e-4 are usual" if optimizer.family == "sgd" else "0.01 to 0.1 is usual"),
            site=optimizer.site,
            parameters=group.parameters,
            evidence={
                "removed_share": share,
                "limit": self.share,
                "weight_decay": group.weight_decay,
                "learning_rate": group.learning_rate,
                "momentum": group.momentum,
            },
        )


def _removed(optimizer: OptimizerRecord | None, group: GroupRecord) -> float:
    """Return the share of a weight that the decay of a step removes, at length with momentum."""
    rate, decay = group.learning_rate or 0.0, group.weight_decay or 0.0
    if optimizer is None or optimizer.maximises:
        return 0.0
    if optimizer.family == "sgd":
        return rate * decay / (1 - min(group.momentum or 0.0, 0.999))
    return rate * decay if "AdamW" in optimizer.class_name else 0.0


def _matrices(context: RuleContext, group: GroupRecord) -> int:
    """Return the number of trained weights of a group with two or more dimensions."""
    records = [context.recording.parameters[one] for one in group.parameters]
    return sum(one.requires_grad and len(one.shape.dims) > 1 for one in records)
