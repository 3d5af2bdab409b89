"""GS213: two parameters that were meant as one."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import ClassVar

from gradscope.analysis.intent import Intent
from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.parameters import TwinRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWeightsApart(Rule):
    """Two parameters that should be tied get separate gradients.

    What it finds:
        Two `nn.Parameter` objects over the same memory, as `a.weight.data = b.weight.data` leaves
        them; or an output layer that holds a copy of an embedding's numbers; or one that stays tied
        to an embedding that another has replaced, as after a change of the vocabulary; or two
        branches of a siamese network, of which one is a copy of the other.

    Why it matters:
        Tied weights are one parameter, whose gradient is the sum over its uses. If they are tied
        through `.data`, the optimizer updates the same numbers twice, each time with a part of the
        gradient and a separate state, and `.to(device)` separates them. A copy is not tied at all:
        both differ after the first step.

    How it is measured:
        Parameters that require grad and get a gradient, by the address of their elements; and
        weights of `nn.Embedding` and `nn.Linear` that are equal in shape and in every element, and
        not constant. A layer stays tied if its weight is that of an embedding in whose place the
        model has another one. Other layers that start equal are left alone, as copies of a layer
        do, except for two modules that are held beside each other, were not loaded, are both
        trained, and whose outputs are subtracted from each other, as in a distance. There is no
        threshold.

    How to fix it:
        Give both modules the same object: `head.weight = embedding.weight`.

    When it may be wrong:
        If the output layer is only initialised from the embedding and should differ later.

    Source:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models"; torch
        documentation, `named_parameters(remove_duplicate=True)`: shared parameters are one object.
    """

    code: ClassVar[str] = "GS213"
    name: ClassVar[str] = "tied-weights-apart"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("twins"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every pair, and one for the shared weights of a line or a layer."""
        shared: dict[int | None, list[TwinRecord]] = {}
        for twin in context.recording.evidence_of(TwinRecord):
            if twin.alike == "target":
                continue  # only one of them is trained
            if twin.alike == "modules":
                yield from self._of_branches(context, twin)
            elif twin.alike == "storage":
                shared.setdefault(_position(context, twin), []).append(twin)
            else:
                yield self._of_parameters(context, [twin])
        for twins in shared.values():
            yield self._of_parameters(context, twins)

    def _of_parameters(self, context: RuleContext, twins: Sequence[TwinRecord]) -> Finding:
        """Return the finding for pairs of parameters, of which the first is told."""
        twin = twins[0]
        first, second = (context.recording.parameters[i] for i in (twin.first, twin.second))
        position = _position(context, twin)
        parameters = sorted({index for one in twins for index in (one.first, one.second)})
        return self.finding(
            context,
            message=_message(twin, first.name, second.name, len(twins) - 1),
            remedy="tie the parameters: " + _tie(first.name, second.name),
            site=position,
            related=[
                context.related(record.site, f"{record.name} is made here")
                for record in (first, second)
                if record.site != position
            ],
            parameters=parameters,
            evidence={
                "alike": twin.alike,
                "first_gradient_norm": _norm(context, twin.first),
                "second_gradient_norm": _norm(context, twin.second),
            },
            count=len(parameters),
        )

    def _of_branches(self, context: RuleContext, twin: TwinRecord) -> Iterator[Finding]:
        """Yield the finding for two copies of a module whose outputs are compared."""
        first, second = _branches(context, twin)
        evidence = context.shared(Intent)
        if first is None or second is None or any(map(evidence.is_loaded, (first, second))):
            return
        meeting = _distance(context, first, second)
        trainable = context.shared(Reach).subtrees.trainable
        optimizers = Optimizers(context)
        # A reference is a copy that no optimizer holds: it stays as it is.
        stays = any(optimizers.held.isdisjoint(trainable[one]) for one in (first, second))
        if meeting is None or (optimizers.with_parameters and stays):
            return
        one, other = (context.recording.modules[index] for index in (first, second))
        parameters = sorted(trainable[first] | trainable[second])
        yield self.finding(
            context,
            message=f"{other.path} is a copy of {one.path}: a distance compares what the two "
            "return, but each gets its own gradient, and they drift apart",
            remedy=f"use one module for both inputs: `{other.path} = {one.path}`",
            site=other.site if twin.site is None else twin.site,
            related=(context.related(meeting, "their outputs are compared here"),),
            parameters=parameters,
            modules=(one.path, other.path),
            evidence={
                "alike": twin.alike,
                "first_gradient_norm": _norm(context, twin.first),
                "second_gradient_norm": _norm(context, twin.second),
            },
            count=2,
        )


def _position(context: RuleContext, twin: TwinRecord) -> int | None:
    """Return the line that made two parameters alike, or the one that made the second."""
    second = context.recording.parameters[twin.second]
    return second.site if twin.site is None else twin.site


def _message(twin: TwinRecord, first: str, second: str, further: int) -> str:
    if twin.alike == "storage":
        more = f", like {counted(further, 'further pair')}," if further else ""
        return (
            f"{first} and {second} share memory{more} but are two parameters: each gets only a "
            "part of the gradient"
        )
    if twin.alike == "replaced":
        return (
            f"{second} stays tied to the embedding that this line replaces: {first} is another "
            "parameter, and each gets its own gradient"
        )
    return f"{second} is a copy of {first}: each gets its own gradient, and they drift apart"


def _branches(context: RuleContext, twin: TwinRecord) -> tuple[int | None, int | None]:
    """Return the two modules beside each other that hold two parameters."""
    subtrees = context.shared(Reach).subtrees
    records = context.recording.parameters
    lineages = [list(subtrees.lineage(records[i].module)) for i in (twin.first, twin.second)]
    for one, other in product(*lineages):
        modules = context.recording.modules
        if one != other and modules[one].parent == modules[other].parent is not None:
            return one, other
    return None, None


def _distance(context: RuleContext, first: int, second: int) -> int | None:
    """Return the line that subtracts what one module returns from what the other does."""
    made = {
        output.node: call.module
        for call in context.recording.calls
        if call.module in (first, second)
        for output in call.outputs
    }
    for node in context.recording.nodes:
        sides = context.successors.get(node.index, ())
        if node.operation == "SubBackward0" and len(sides) == 2:
            sources = [_sources(context, ref.node, made) for ref in sides]
            if sources in ([{first}, {second}], [{second}, {first}]):
                return node.site
    return None


def _sources(context: RuleContext, node: int, made: Mapping[int, int]) -> set[int | None]:
    """Return the modules whose outputs a tensor is computed from; None for another parameter."""
    found: set[int | None] = set()
    waiting, seen = [node], {node}
    while waiting:
        one = waiting.pop()
        # A module's output stands for all that it was computed from.
        if one in made:
            found.add(made[one])
            continue
        if context.recording.nodes[one].parameter is not None:
            # A layer between them makes the comparison more than a distance.
            return {None}
        fresh = [ref.node for ref in context.successors.get(one, ()) if ref.node not in seen]
        seen.update(fresh)
        waiting += fresh
    return found


def _tie(first: str, second: str) -> str:
    return f"`model.{second} = model.{first}`"


def _norm(context: RuleContext, parameter: int) -> float | None:
    stat = context.parameter_stat(parameter)
    return None if stat is None or stat.gradient is None else stat.gradient.norm
