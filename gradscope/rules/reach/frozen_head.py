"""GS214: new layers that are frozen together with old ones: heads, adapters."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from gradscope.analysis.intent import Intent
from gradscope.analysis.model_parts import Subtrees
from gradscope.frozen import dataclass
from gradscope.recording.evidence.parameters import FreezeRecord, ReplacementRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleCallRecord, ParameterRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.idle_adapters import idle_adapters
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenHead(Rule):
    """The layer that feeds the loss, or a new adapter, is frozen while others learn.

    What it finds:
        A model whose last layer with weights does not require grad, although (nearly) every other
        layer does, although it replaced another layer, such as a new classifier, or although it
        starts from random weights on top of frozen layers that were loaded. A layer beside the last
        one that was frozen so, such as a `pre_classifier`. Also adapters of a low rank that are
        frozen together with the model that they were put into.

    Why it matters:
        A loop that should freeze only the backbone also froze the head, or froze it instead. The
        layers before it must fit a random projection, and the loss stalls early. An adapter that is
        frozen at its first weights, of which the second is zero, changes nothing.

    How it is measured:
        The head is the module with a weight matrix of its own whose output is nearest to the loss.
        Of the other layers no more than `most_frozen` may be frozen, unless the head replaced
        another module and is the only replacement that is frozen, or has weights that nothing
        loaded while those of frozen layers were loaded. If the head learns, the same holds for the
        layers before it in its own module, up to the first that was loaded. A head that a line of
        its own freezes is fixed on purpose. A module that returns the loss itself is no head. It is
        an error if the head has weights that nothing loaded, and a warning otherwise. An adapter is
        two weights whose product has a lower rank than its size. It is a warning if both are frozen
        by a line of their own, the second is exactly zero, and no module of the same class learns.

    How to fix it:
        Freeze the backbone before the head is replaced or the adapters are added, or give them
        their `requires_grad_(True)` back.

    When it may be wrong:
        A classifier may be fixed on purpose, such as a simplex of class means. The rule skips
        models that are mostly frozen (adapters, prompts, a frozen discriminator), and heads whose
        weight is tied to another layer's.

    Source:
        discuss.pytorch.org 84911: a freezing loop that froze the new classifier as well.
    """

    code: ClassVar[str] = "GS214"
    name: ClassVar[str] = "frozen-head"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS208",)
    needs: ClassVar[Needs] = (has_backward,)

    most_frozen: float = 0.1
    """Share of the other layers, 0 to 1, that may be frozen. Chosen: an early embedding or stem is
    often frozen for good reason, and so is a whole backbone.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a head and one for adapters that are frozen and should not be."""
        yield from self._of_adapters(context)
        yield from self._of_head(context)
        yield from self._before_head(context)

    def _of_adapters(self, context: RuleContext) -> Iterator[Finding]:
        adapters = list(idle_adapters(context))
        modules = [context.recording.modules[one.module] for one in adapters]
        made = [context.site(one.site) for one in modules]
        # Frozen by no line, adapters were loaded or made that way.
        freezes = next(filter(None, (_freeze(context, one) for one in made)), None)
        trained = sum(p.requires_grad for p in context.recording.parameters)
        if not adapters or freezes is None or not trained:
            return
        paths = [one.path for one in modules]
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        yield self.finding(
            context,
            message=(
                f"the adapters of {', '.join(paths[:3])}{more} are frozen, and their second weight "
                "is 0: they change nothing"
            ),
            remedy="freeze the model before the adapters are added, or unfreeze them after it",
            site=freezes,
            related=(context.related(made[0], f"{paths[0]} is made here"),),
            parameters=[index for one in adapters for index in one.parameters],
            evidence={"frozen_adapters": len(adapters)},
            count=len(adapters),
        )

    def _of_head(self, context: RuleContext) -> Iterator[Finding]:
        layers = _layers(context)
        head = next(iter(_calls(context, layers)), None)
        if head is None or not _is_frozen(layers[head.module]) or _is_tied(layers[head.module]):
            return
        replaced = _replacement(context, layers, head.module)
        # In a network that is frozen as a whole, a replaced layer was frozen along.
        if replaced is not None and not _learns_around(context, head.module):
            replaced = None
        # What was put in place of another head was meant to learn, whatever network it is in.
        is_other = replaced is None and _is_of_frozen_network(context, layers, head)
        if is_other or _learns_elsewhere(context, layers[head.module]):
            return
        others = [owned for module, owned in layers.items() if module != head.module]
        frozen = sum(_is_frozen(owned) for owned in others)
        context.measured(
            self.code,
            "frozen_other_layers",
            frozen,
            self.most_frozen * len(others),
            fires="below",
            subject=context.recording.modules[head.module].path,
        )
        # Where all layers are frozen, norms, biases or prompts learn under an old head.
        if replaced is None and frozen == len(others):
            return
        is_new = frozen > 0 and _is_left_random(context, layers, head.module)
        if replaced is not None or is_new or frozen <= self.most_frozen * len(others):
            finding = self._finding(context, head, layers, frozen, replaced)
            yield replace(finding, severity="error") if is_new else finding

    def _before_head(self, context: RuleContext) -> Iterator[Finding]:
        layers = _layers(context)
        head, fresh = _frozen_before_head(context, layers)
        if head is None or not fresh:
            return
        modules = [context.recording.modules[one] for one in fresh]
        made = context.site(modules[0].site)
        freezes = _freeze(context, made)
        paths = ", ".join(one.path for one in modules)
        yield self.finding(
            context,
            message=(
                f"{paths} {'is' if len(modules) == 1 else 'are'} frozen at random weights, between "
                f"loaded layers and {context.recording.modules[head].path}, which learns"
            ),
            remedy=f"call `{modules[0].path}.requires_grad_(True)` after freezing the rest",
            site=freezes or made,
            related=(
                context.related(made, f"{modules[0].path} is made here") if freezes else None,
            ),
            parameters=[one.index for module in fresh for one in layers[module]],
            evidence={"frozen_layers": len(modules)},
            count=len(modules),
        )

    def _finding(
        self,
        context: RuleContext,
        head: ModuleCallRecord,
        layers: dict[int, list[ParameterRecord]],
        frozen: int,
        replaced: ReplacementRecord | None,
    ) -> Finding:
        record = context.recording.modules[head.module]
        others = len(layers) - 1
        # A layer that is no part of another module was registered nowhere; its weight was.
        sites = [record.site, *(owned.site for owned in layers[head.module])]
        place = next((site for site in sites if site is not None), None)
        made = context.site(place if replaced is None else replaced.site)
        is_made_frozen = made is not None and "requires_grad" in made.source
        freezes = None if is_made_frozen else _freeze(context, made)
        trained = sum(p.requires_grad for p in context.recording.parameters)
        which = f"{record.path}, the layer that feeds the loss,"
        how = "was replaced and then frozen" if replaced is not None else "is frozen"
        return self.finding(
            context,
            message=(
                f"{which} {how} while {trained} parameters before it learn "
                f"({others - frozen} of {others} other layers)"
            ),
            remedy=f"call `{record.path}.requires_grad_(True)` after freezing the rest",
            site=freezes or made,
            related=(
                context.related(made, f"{record.path} is made here")
                if freezes not in (None, made)
                else None,
            ),
            parameters=[parameter.index for parameter in layers[head.module]],
            evidence={
                "frozen_other_layers": frozen,
                "other_layers": others,
                "most_frozen": self.most_frozen,
                "replaced": replaced is not None,
            },
        )


def _layers(context: RuleContext) -> dict[int, list[ParameterRecord]]:
    """Return the parameters of every module that was called and owns a weight matrix."""
    called = {call.module for call in context.recording.calls}
    found: dict[int, list[ParameterRecord]] = {}
    for parameter in context.recording.parameters:
        if parameter.module in called:
            found.setdefault(parameter.module, []).append(parameter)
    return {
        module: owned
        for module, owned in found.items()
        if any(len(parameter.shape.dims) >= 2 for parameter in owned)
    }


def _calls(
    context: RuleContext, layers: dict[int, list[ParameterRecord]]
) -> list[ModuleCallRecord]:
    """Return the calls of layers that pass on gradients, the one nearest to the loss first."""
    calls = (
        (min(context.recording.nodes[ref.node].depth for ref in call.outputs), call.index)
        for call in context.recording.calls
        if call.graph == 0 and call.module in layers and call.outputs
        if not _is_loss(context, call)
    )
    return [context.recording.calls[index] for _, index in sorted(calls)]


def _is_loss(context: RuleContext, call: ModuleCallRecord) -> bool:
    """Return whether a call returns single numbers, as a loss with parameters of its own does."""
    outputs = (context.recording.nodes[ref.node].outputs[ref.slot] for ref in call.outputs)
    return all(shape is not None and not shape.dims for shape in outputs)


def _is_of_frozen_network(
    context: RuleContext, layers: dict[int, list[ParameterRecord]], head: ModuleCallRecord
) -> bool:
    """Return whether the head belongs to a network that only measures.

    The layer before it is frozen too then, as in a discriminator, or it is called on what carries
    no gradient, as a perceptual loss is on its target.
    """
    following = [call for call in _calls(context, layers) if call.module != head.module]
    before = bool(following) and _is_frozen(layers[following[0].module])
    # Its second call is that of the target, which has no gradient to pass on.
    on_data = any(
        call.module == head.module and not call.inputs for call in context.recording.calls
    )
    return before or on_data


def _learns_elsewhere(context: RuleContext, owned: list[ParameterRecord]) -> bool:
    """Return whether other passes of a run train a layer, such as a discriminator."""
    learning = frozenset[int]() if context.run is None else context.run.learning
    return any(parameter.index in learning for parameter in owned)


def _is_frozen(owned: list[ParameterRecord]) -> bool:
    return not any(parameter.requires_grad for parameter in owned)


def _learns_around(context: RuleContext, head: int) -> bool:
    """Return whether something learns in the module that a layer is part of."""
    around = context.recording.modules[head].parent
    return around is not None and around in Subtrees(context.recording).trainable


def _is_tied(owned: list[ParameterRecord]) -> bool:
    return any(parameter.aliases for parameter in owned)


def _replacement(
    context: RuleContext, layers: dict[int, list[ParameterRecord]], head: int
) -> ReplacementRecord | None:
    """Return the replacement of the head, if no other layer that was replaced is frozen."""
    frozen = [
        record
        for record in context.recording.evidence_of(ReplacementRecord)
        if record.module in layers and _is_frozen(layers[record.module])
    ]
    return frozen[0] if len(frozen) == 1 and frozen[0].module == head else None


def _is_left_random(
    context: RuleContext, layers: dict[int, list[ParameterRecord]], head: int
) -> bool:
    """Return whether one line froze loaded layers and a head whose weights nothing loaded."""
    intent = context.shared(Intent)
    loaded = [
        module for module, owned in layers.items() if _is_frozen(owned) and intent.is_loaded(module)
    ]
    lines = {record.site for record in context.recording.evidence_of(FreezeRecord)}
    return bool(loaded) and len(lines) == 1 and not intent.is_loaded(head)


def _frozen_before_head(
    context: RuleContext, layers: dict[int, list[ParameterRecord]]
) -> tuple[int | None, list[int]]:
    """Return a head that learns, and the layers of its module that are frozen at random weights."""
    head = next(iter(_calls(context, layers)), None)
    if head is None or _is_frozen(layers[head.module]):
        return None, []
    # What is frozen has no operation in the graph: the calls before tell the order.
    before = (one.module for one in reversed(context.recording.calls[: head.index + 1]))
    order = list(dict.fromkeys(one for one in before if one in layers))
    intent, modules = context.shared(Intent), context.recording.modules
    loaded = next((i for i, one in enumerate(order) if intent.is_loaded(one)), None)
    if loaded is None or not _is_frozen(layers[order[loaded]]):
        return None, []
    fresh = [one for one in order[1:loaded] if _is_frozen(layers[one])]
    # A helper that freezes networks has one line for all: those lie in modules of their own.
    are_beside = all(modules[one].parent == modules[order[0]].parent for one in fresh)
    lines = {record.site for record in context.recording.evidence_of(FreezeRecord)}
    is_fixed = any(
        _is_tied(layers[one]) or _learns_elsewhere(context, layers[one]) for one in fresh
    )
    return order[0], fresh if are_beside and len(lines) == 1 and not is_fixed else []


def _freeze(context: RuleContext, made: Site | None) -> Site | None:
    """Return the last line that froze the head, judged by its file; any if that is installed."""
    lines = [context.site(record.site) for record in context.recording.evidence_of(FreezeRecord)]
    return max(
        (
            site
            for site in lines
            if site is not None
            and made is not None
            # Lines of other files may freeze other networks. No line stands beside what an
            # installed file makes.
            and (site.file == made.file or made.is_installed)
        ),
        key=lambda site: site.line,
        default=None,
    )
