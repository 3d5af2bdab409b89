"""GS235: layers that are trained along with their low-rank adapters."""

import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleRecord, ParameterRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.idle_adapters import is_of_low_rank
from gradscope.rules.helpers.optimizers import NO_OPTIMIZER
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_MATRICES = 3
"""Those of the layer, and of the two steps of its adapter."""
_NAME = re.compile(r"(^|[^a-z])q?lora|lora([^a-z]|$)|LoRA|LoRa|Lora")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedLayerTrained(Rule):
    """A layer is trained along with the low-rank adapter that should be trained in its place.

    What it finds:
        LoRA whose base weights still require grad, and are in the optimizer with the adapters.

    Why it matters:
        All of the weights are trained: the memory of gradients and optimizer states is that of full
        fine-tuning, and the adapters that are saved fit no base but the one that was changed along.

    How it is measured:
        A module named as LoRA, or with parameters so named, holds three matrices: two in a row
        through a smaller space, and one from the inputs of the first to the outputs of the second.
        All three get a gradient and are in an optimizer. There is no threshold.

    How to fix it:
        Freeze the layer before the adapters are added: `layer.weight.requires_grad_(False)`, or
        give the optimizer the adapters alone.

    When it may be wrong:
        If a low rank is added to layers that are meant to be trained as a whole.

    Source:
        Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models" (arXiv 2106.09685),
        section 4.1: the pretrained weights "are frozen and do not receive gradient updates".
    """

    code: ClassVar[str] = "GS235"
    name: ClassVar[str] = "adapted-layer-trained"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward,)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if context.recording.evidence_of(OptimizerRecord) else NO_OPTIMIZER

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if layers under adapters are trained."""
        bases = list(_trained_bases(context))
        if not bases:
            return
        names = [one.name for one in bases]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        held = [
            one
            for one in context.recording.evidence_of(OptimizerRecord)
            if bases[0].index in one.parameters
        ]
        yield self.finding(
            context,
            message=(
                f"{', '.join(names[:3])}{more} "
                f"{'is' if len(names) == 1 else 'are'} trained along with the low-rank adapters "
                f"that should change {'it' if len(names) == 1 else 'them'}"
            ),
            remedy="freeze the layers, or give the optimizer the adapters alone",
            site=held[0].site,
            related=(context.related(bases[0].site, f"{names[0]} is made here"),),
            parameters=[one.index for one in bases],
            evidence={
                "trained_layers": len(bases),
                "elements": counted(sum(one.numel for one in bases), "element"),
            },
            count=len(bases),
        )


def _trained_bases(context: RuleContext) -> Iterator[ParameterRecord]:
    """Yield the trained weight of each adapted layer: it holds three matrices, all of them trained.

    Two of them lead through a space of low rank.
    """
    recording = context.recording
    held = {p for one in recording.evidence_of(OptimizerRecord) for p in one.parameters}
    trained = context.shared(Reach).learning & held
    matrices = dict[str, list[ParameterRecord]]()
    for one in recording.parameters:
        if len(one.shape.dims) == 2:
            parts = one.name.split(".")
            for depth in range(1, len(parts)):
                matrices.setdefault(".".join(parts[:depth]), []).append(one)
    for module in recording.modules:
        own = matrices.get(module.path, [])
        is_trained = trained.issuperset(one.index for one in own)
        if len(own) != _MATRICES or not is_trained or not _is_named(module, own):
            continue
        for base in own:
            first, second = (one for one in own if one is not base)
            if _is_adapted(base, first, second) or _is_adapted(base, second, first):
                yield base
                break


def _is_adapted(base: ParameterRecord, first: ParameterRecord, second: ParameterRecord) -> bool:
    rank = min(first.shape.dims)
    sizes = {*first.shape.dims, *second.shape.dims} - {rank}
    return is_of_low_rank(first, second) and sizes == {*base.shape.dims} and rank < min(sizes)


def _is_named(module: ModuleRecord, own: list[ParameterRecord]) -> bool:
    """Return whether the class or the parameters of an adapted layer are named as LoRA."""
    below = (one.name[len(module.path) :] for one in own)
    return any(map(_NAME.search, (module.class_name, *below)))
