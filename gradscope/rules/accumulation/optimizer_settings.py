"""GS329, GS330 and GS332: weight decay and momentum that are too high, or exempt no norm."""

import math
import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, literal, short
from gradscope.recording.evidence.training import GroupRecord, OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.rule import Rule

_LEAST_MATRICES = 2
"""Number of weight matrices of a network; a single one may be a ridge regression."""

_OF_NORM = re.compile(r"norm|ln|bn|gamma", re.IGNORECASE)
"""Words that mean the parameters of norms."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayFilterWithoutMatch(Rule):
    """A filter that exempts norms from weight decay by their name matches none of them.

    What it finds:
        Parameter groups for weight decay that a script forms by names, such as
        `no_decay = ["bias", "LayerNorm.weight"]`, in a model whose norms have other names, such as
        `ln_1.weight`.

    Why it matters:
        Weight decay pulls the scales of the norms towards 0, which the script meant to prevent.
        Nothing fails: a word that no name contains is simply never true.

    How it is measured:
        The file that makes the optimizer is searched for `any(word in name for word in words)`,
        where the words are those of a variable, an argument or a setting, and for `"norm" in name
        or "bias" in name`. Such a filter is judged if the parameters whose names it matches are
        exactly those without weight decay. The rule reports a word that means norms and is in no
        name of the model, if parameters of norms have weight decay.

    How to fix it:
        Use a part of the norms' names, or choose them by class or by shape: `p.ndim < 2`.

    When it may be wrong:
        If the script's list serves several models, and the decay of these norms is meant.

    Source:
        huggingface/transformers pull request 35927 and unslothai/unsloth-zoo pull request 684:
        norms that the names did not match.
    """

    code: ClassVar[str] = "GS329"
    name: ClassVar[str] = "decay-filter-without-match"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(series.record is not None for series in context.shared(Windows).series):
            return None
        return "the construction of no optimizer was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every such list of words."""
        for series in context.shared(Windows).series:
            for site, words in _filters(series).items():
                dead, norms = _missed(context, series, words)
                if not dead or not norms:
                    continue
                listed = " and ".join(map(repr, dead))
                first = context.recording.parameters[norms[0]].name
                yield self.finding(
                    context,
                    message=(
                        f"{listed} {'is' if len(dead) == 1 else 'are'} in no parameter's name: "
                        f"weight decay shrinks {counted(len(norms), 'parameter')} of norms, such "
                        f"as {first}"
                    ),
                    remedy="use a part of the norms' names, or choose them by class or by shape: "
                    "p.ndim < 2",
                    site=site,
                    related=(
                        context.related(
                            None if series.record is None else series.record.site, "the optimizer"
                        ),
                    ),
                    parameters=norms,
                    evidence={"words_without_match": len(dead), "decayed_norms": len(norms)},
                    count=len(norms),
                )


def _filters(series: Series) -> dict[int, tuple[str, ...]]:
    """Return the words of each list, by its line."""
    found: dict[int, tuple[str, ...]] = {}
    for word, site in () if series.record is None else series.record.name_filters:
        found[site] = (*found.get(site, ()), word)
    return found


def _missed(
    context: RuleContext, series: Series, words: tuple[str, ...]
) -> tuple[list[str], list[int]]:
    """Return words that mean norms and match nothing, and the norms with weight decay.

    Both are empty if the filter is not the one that formed the groups.
    """
    if series.record is None:
        return [], []
    records = context.recording.parameters
    held = sorted(series.record.parameters)
    matched = [index for index in held if any(word in records[index].name for word in words)]
    if matched != sorted(series.record.undecayed):
        return [], []
    names = [record.name for record in records]
    dead = [
        word for word in words if _OF_NORM.search(word) and not any(word in name for name in names)
    ]
    modules = context.recording.modules
    norms = [
        index
        for index in held
        if index not in matched and "Norm" in modules[records[index].module].class_name
    ]
    return dead, norms


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumNeverFades(Rule):
    """A momentum keeps old gradients longer than the optimizer can bear.

    What it finds:
        `SGD(…, momentum=1.0)` or `momentum=9`, where 0.9 was meant, and
        `Adam(…, betas=(0.999, 0.9))` with its two betas swapped.

    Why it matters:
        With a momentum of 1 each gradient is added to all later steps: the weights swing for ever,
        and do not settle at a minimum. With more than 1 the steps grow without bound. Adam divides
        an average of gradients by the root of an average of squares. If the first is much older
        than the second, a few small gradients make the divisor small while the average is still
        large, and the step overshoots.

    How it is measured:
        The momentum of the groups of SGD: 1 or more is an error. The two betas of Adam and its
        relatives: a first beta whose square is above the second is a warning.

    How to fix it:
        Use a momentum of 0.9, and betas of (0.9, 0.999) or (0.9, 0.95).

    When it may be wrong:
        If an undamped momentum is the subject of an experiment.

    Source:
        Reddi et al. 2018, "On the Convergence of Adam and Beyond" (arXiv 1904.09237), whose
        condition is that of Kingma and Ba 2015: the first beta is below the root of the second.
        Polyak 1964 for momentum, which converges only below 1.
    """

    code: ClassVar[str] = "GS332"
    name: ClassVar[str] = "momentum-never-fades"
    level: ClassVar[Severity] = "error"

    highest: float = 1.0
    """Momentum of SGD from which on it is found; and largest square of Adam's first beta over the
    second. Source: the conditions of convergence, as above.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return Optimizers(context).skip_reason()

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer with such a group."""
        for optimizer in Optimizers(context).with_parameters:
            judged = [(_kept(group, optimizer.family), group) for group in optimizer.groups]
            kept, group = max(judged, key=lambda one: one[0])
            is_sgd = optimizer.family == "sgd"
            context.measured(
                self.code,
                "momentum" if is_sgd else "squared_first_beta_over_second",
                kept,
                self.highest,
                subject=optimizer.class_name,
            )
            if kept < self.highest or (kept == self.highest and not is_sgd):
                continue
            message, remedy = _of_sgd(group) if is_sgd else _of_adam(group)
            yield self.finding(
                context,
                message=f"{optimizer.class_name} {message}",
                remedy=remedy,
                site=optimizer.site,
                severity="error" if is_sgd else "warning",
                parameters=group.parameters,
                evidence={"kept": kept, "limit": self.highest, "momentum": group.momentum},
            )


def _kept(group: GroupRecord, family: str) -> float:
    """Return what must stay below 1 for old gradients to fade in time."""
    if family == "sgd":
        return group.momentum or 0.0
    if family != "adaptive" or group.betas is None or not group.betas[1]:
        return 0.0
    return group.betas[0] ** 2 / group.betas[1]


def _of_sgd(group: GroupRecord) -> tuple[str, str]:
    momentum = group.momentum or 0.0
    grows = (
        f"multiplies its velocity by {literal(momentum)} in each step, which grows without bound"
        if momentum > 1
        else "has a momentum of 1: no gradient ever fades from its velocity"
    )
    return grows, "use a momentum below 1: 0.9 is usual"


def _of_adam(group: GroupRecord) -> tuple[str, str]:
    first, second = group.betas or (0.0, 0.0)
    steps = [short(1 / (1 - beta), 2) if beta < 1 else "all" for beta in (first, second)]
    message = (
        f"averages gradients over {steps[0]} steps, but their squares over {steps[1]}: "
        f"betas=({literal(first)}, {literal(second)}) are the wrong way round"
    )
    swapped = f"({literal(second)}, {literal(first)})"
    return message, f"pass betas={swapped}: the first beta belongs to the gradient"
