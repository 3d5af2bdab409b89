"""GS211: a bootstrapped target that is trained along with the prediction."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.intent import is_named_fixed
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import AverageEvent, only
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.evidence.parameters import TwinRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.attraction import Attraction, attractions, collapsing
from gradscope.rules.helpers.loss.flow import (
    SAME_NUMBERS,
    is_averaged_into_loss,
    nodes_behind,
    parameters_behind,
    reached_beside,
)
from gradscope.rules.helpers.optimizers import Optimizers, superseded
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_REGRESSIONS = frozenset({"huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"})
_BINARY = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
_ONE_SIDED = _BINARY | {"cross_entropy", "kl_div"}
"""Losses whose second operand is a distribution to learn from."""
_WRITES = frozenset({"CopySlices", "IndexPutBackward0"})
_SUMS = frozenset({"AddBackward0", "SubBackward0", "SubBackward1"})
_PRODUCTS = frozenset({"DivBackward0", "MulBackward0"})
_SELECTIONS = frozenset(
    {
        "AmaxBackward0",
        "AminBackward0",
        "GatherBackward0",
        "IndexBackward0",
        "MaxBackward0",
        "MaxBackward1",
        "MinBackward0",
    }
)
_ASSEMBLING = SAME_NUMBERS | {
    "CatBackward0",
    "ClampBackward1",
    "CopySlices",
    "IndexPutBackward0",
    "StackBackward0",
    "WhereBackward0",
}
"""Operations that assemble a target from parts."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The side of a regression that computes its target with the trained model."""

    total: NodeRecord
    """Node that adds data, such as rewards, to the estimate."""
    site: int | None
    """Line of the loss."""
    shared: frozenset[int]
    """Parameters that both sides were computed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDifferentiated(Rule):
    """Gradients flow into a target that the trained network itself computes.

    What it finds:
        A regression whose target is data plus a factor times another prediction of the same
        network, such as `reward + gamma * q(next_state).max(1).values`, without `detach()`. A
        target of `binary_cross_entropy` into whose zeros a result of the network was written, such
        as the overlap of a detector's boxes. A
        target network whose parameters share the memory of the trained ones, as after
        `target.data = online.data`. And losses that only draw two outputs of one network to each
        other, as SimSiam does without its stop-gradient. A moving average of a network that the
        optimizer trains as well, as BYOL's target without `no_grad`. And a teacher that only its
        student trains: it learns to agree.

    Why it matters:
        Backward moves the target towards the prediction as well as the prediction towards the
        target. The loss falls quickly, but the values may stay far from the true ones. If the loss
        has no other term, a constant output is its minimum, and the network collapses to it.

    How it is measured:
        In the graph: both sides of a `mse_loss`, `l1_loss`, `smooth_l1_loss`, `huber_loss` or of a
        difference that is squared and averaged lead to the same parameters; one of them adds data
        to a product of data with one number per sample, or with a selection among several; and the
        other does not. There is no threshold. Or the target of a binary cross-entropy is data of
        which elements were overwritten by results of parameters that its prediction depends on.

        A loss draws two outputs together if all of its terms are distances with a plus or cosine
        similarities with a minus, of two runs of one network that share no operation but half of
        their parameters at least. The values before and after a constant factor tell its sign.
        Beside other terms it is a warning if these do not depend on the shared parameters, as of a
        perceptual loss whose features are trained. The rule skips outputs that are whitened or end
        in batch norm, sides to which data are added last, and runs with several backward passes per
        step.

        A teacher is what the target of `kl_div`, or probabilities as targets of `cross_entropy` and
        `binary_cross_entropy`, were computed from: weights that the optimizer holds, that share
        nothing with the prediction, and that nothing else in the loss depends on.

        In a run: a line writes to parameters `a` times their own content and `1 - a` times other
        parameters, with `a` from 0.9 on, in two captured steps; the optimizer steps both with a
        gradient.

    How to fix it:
        Compute the target under `torch.no_grad()`, or detach the network's prediction for the next
        state.

    When it may be wrong:
        If the residual should be minimised on both sides, as in residual-gradient algorithms. Or if
        something that autograd does not see keeps the outputs apart.

    Source:
        Sutton and Barto 2018, "Reinforcement Learning", section 11.5 (semi-gradients); Baird 1995,
        "Residual Algorithms".
        easy-rl pull request 117 and Deep-Q-Learning-Paper-To-Code issue 16: targets that were not
        detached.
        Chen and He 2021, "Exploring Simple Siamese Representation Learning" (arXiv 2011.10566),
        section 4.1: without stop-gradient the outputs collapse to a constant. Measured after 400
        steps of a small SimSiam: the standard deviation of the normalised outputs, times the square
        root of their dimension, falls from 0.84 to 0.08 without stop-gradient, and to 0.79 with it.
    """

    code: ClassVar[str] = "GS211"
    name: ClassVar[str] = "target-differentiated"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="parameters_shared"),)
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes a target."""
        by_line: dict[int | None, list[_Target]] = {}
        for target in (*_targets(context), *_written_targets(context)):
            line = target.site if target.total.site is None else target.total.site
            by_line.setdefault(line, []).append(target)
        for line, targets in by_line.items():
            shared = sorted(frozenset[int]().union(*(target.shared for target in targets)))
            loss = targets[0].site
            yield self.finding(
                context,
                message="the target is trained too: it contains the network's own prediction, "
                f"and {len(shared)} parameters get gradients from both sides of the loss",
                remedy="detach the network's part of the target, or compute it under no_grad",
                site=line,
                related=(
                    context.related(loss, "the loss compares it here") if loss != line else None,
                ),
                parameters=shared,
                evidence={"parameters_shared": len(shared)},
                count=len(targets),
            )
        yield from self._of_shared_memory(context)
        yield from self._taught(context)
        if not by_line and (context.run is None or context.run.is_only_loss):
            yield from self._drawn_together(context)

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every average of the weights that the optimizer steps, too."""
        for event in only(AverageEvent, context.shared(Windows).events):
            if event.trained:
                tensors = counted(event.tensors or 0, "tensor")
                yield self.finding(
                    context,
                    message=(
                        f"the moving average of {tensors} is trained, too: the loss gives it "
                        "gradients, and the optimizer steps it"
                    ),
                    remedy="compute the target under no_grad, and freeze its parameters",
                    site=event.site,
                    evidence={"tensors": event.tensors, "factor": event.own},
                    count=event.tensors or 0,
                    step=event.step,
                )

    def _of_shared_memory(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a network without a gradient whose weights are the trained ones."""
        recording = context.recording
        twins = [one for one in recording.evidence_of(TwinRecord) if one.alike == "target"]
        roots: dict[int, list[TwinRecord]] = {}
        for twin in twins:
            roots.setdefault(_root(context, twin.second), []).append(twin)
        for root, pairs in roots.items():
            owned = [p for p in recording.parameters if _root(context, p.index) == root]
            second = {pair.second for pair in pairs}
            if len(pairs) < len(owned) or not _is_target(context, root, second):
                continue
            if second <= superseded(context):
                continue  # a weight that was split into others keeps its memory
            module, first = recording.modules[root], pairs[0].first
            yield self.finding(
                context,
                message=(
                    f"{module.path or module.class_name} shares the memory of "
                    f"{_path_of_root(context, first)}: its {len(pairs)} parameters change with "
                    "every step, and the target moves with the prediction"
                ),
                remedy="copy the values: `target.load_state_dict(online.state_dict())`",
                site=recording.parameters[pairs[0].second].site
                if pairs[0].site is None
                else pairs[0].site,
                parameters=sorted(second),
                evidence={"parameters_shared": len(pairs)},
                count=len(pairs),
            )

    def _taught(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of a loss that trains a teacher to agree."""
        if context.run is not None and not context.run.is_only_line:
            return  # another loss may train it
        by_line: dict[int | None, set[int]] = {}
        for record in context.recording.evidence_of(ComparisonRecord):
            if record.operation in _ONE_SIDED:
                by_line.setdefault(record.site, set()).update(_teacher(context, record))
        for line, teacher in by_line.items():
            if teacher:
                yield self.finding(
                    context,
                    message=(
                        f"the loss trains its target too: {counted(len(teacher), 'parameter')} get "
                        "gradients only because they compute what the prediction should be"
                    ),
                    remedy="compute the target under no_grad, and leave it out of the optimizer",
                    site=line,
                    parameters=sorted(teacher),
                    evidence={"parameters_shared": 0, "parameters_of_target": len(teacher)},
                    count=len(teacher),
                )

    def _drawn_together(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of a loss that a constant output minimises."""
        by_line: dict[int | None, list[Attraction]] = {}
        drawn = attractions(context)
        held = Optimizers(context).held
        for one in drawn or (one for one in collapsing(context) if one.shared <= held):
            by_line.setdefault(one.record.site, []).append(one)
        for line, terms in by_line.items():
            shared = sorted(frozenset[int]().union(*(term.shared for term in terms)))
            yield self.finding(
                context,
                message=(
                    "the loss only draws two outputs of one network to each other, and "
                    f"{len(shared)} parameters get gradients from both sides: a constant output "
                    "minimises it"
                    if drawn
                    else f"{len(shared)} parameters only learn to make two outputs of their "
                    "network alike: a constant output minimises this term"
                ),
                remedy=(
                    "detach one side, or compute it under no_grad"
                    if drawn
                    else "freeze this network, and leave it out of the optimizer"
                ),
                site=line,
                severity="error" if drawn else "warning",
                parameters=shared,
                evidence={"parameters_shared": len(shared)},
                count=len(terms),
            )


def _teacher(context: RuleContext, record: ComparisonRecord) -> frozenset[int]:
    """Return the trained parameters of a target's network, on which nothing else depends."""
    left, right = record.left_tensor, record.right_tensor
    if left is None or right is None:
        return frozenset()
    own = parameters_behind(context, right.node)
    records = context.recording.parameters
    is_network = any(len(records[index].shape.dims) > 1 for index in own)
    if not is_network or not own <= Optimizers(context).held:
        return frozenset()
    return own if own.isdisjoint(reached_beside(context, {right.node})) else frozenset()


def _root(context: RuleContext, parameter: int) -> int:
    """Return the outermost module of a parameter's model that has a name."""
    modules = context.recording.modules
    position = context.recording.parameters[parameter].module
    while (parent := modules[position].parent) is not None and modules[parent].path:
        position = parent
    return position


def _path_of_root(context: RuleContext, parameter: int) -> str:
    module = context.recording.modules[_root(context, parameter)]
    return module.path or module.class_name


def _is_target(context: RuleContext, root: int, parameters: set[int]) -> bool:
    """Return whether a result of a network without a gradient reaches the loss."""
    cuts = context.recording.cuts
    is_used = any(cut.joins and not parameters.isdisjoint(cut.parameters) for cut in cuts)
    return is_used or is_named_fixed([context.recording.modules[root].path])


def _targets(context: RuleContext) -> Iterator[_Target]:
    for left, right, site in _regressions(context):
        totals = _bootstrap(context, left), _bootstrap(context, right)
        total = totals[0] or totals[1]
        if total is None or None not in totals:
            continue
        shared = parameters_behind(context, left) & parameters_behind(context, right)
        if shared:
            yield _Target(total, site, shared)


def _written_targets(context: RuleContext) -> Iterator[_Target]:
    """Yield the targets of two classes into which the network's own results were written."""
    for record in context.recording.evidence_of(ComparisonRecord):
        left, right = record.left_tensor, record.right_tensor
        if record.operation not in _BINARY or left is None or right is None:
            continue
        node = context.behind_views(right.node, ("ToCopyBackward0",))
        inputs = context.inputs(node.index)
        shared = parameters_behind(context, left.node) & parameters_behind(context, right.node)
        # One input: what was overwritten are data.
        if node.operation in _WRITES and len(inputs) == 1 and shared:
            yield _Target(node, record.site, shared)


def _regressions(context: RuleContext) -> Iterator[tuple[int, int, int | None]]:
    """Yield pairs of nodes that the loss pulls together, and the line that compares them."""
    for record in context.recording.evidence_of(ComparisonRecord):
        left, right = record.left_tensor, record.right_tensor
        if record.operation in _REGRESSIONS and left is not None and right is not None:
            yield left.node, right.node, record.site
    for node in context.first.nodes:
        if node.operation in _SUMS and _is_squared(context, node.index):
            inputs = context.successors.get(node.index, ())
            if len(inputs) == 2 and is_averaged_into_loss(context, node.index):
                yield inputs[0].node, inputs[1].node, node.site


def _is_squared(context: RuleContext, node: int) -> bool:
    """Return whether a difference is squared, or its absolute value is taken."""
    squares = ("AbsBackward0", "HuberLossBackward0", "MseLossBackward0", "PowBackward0")
    inputs = [ref.node for user in context.users.get(node, ()) for ref in context.successors[user]]
    return any(user.operation in squares for user in context.consumers(node)) or any(
        inputs.count(node) == 2 and context.recording.nodes[user].operation == "MulBackward0"
        for user in context.users.get(node, ())
    )


def _bootstrap(context: RuleContext, node: int) -> NodeRecord | None:
    """Return the sum of data and a discounted estimate that makes a target, if it is one."""
    for total in _parts(context, node):
        if total.operation not in _SUMS:
            continue
        terms = context.successors.get(total.index, ())
        if len(terms) != 1:
            continue
        for product in _parts(context, terms[0].node):
            factors = context.successors.get(product.index, ())
            if product.operation in _PRODUCTS and len(factors) == 1:
                return total if _is_value(context, factors[0].node) else None
    return None


def _parts(context: RuleContext, node: int) -> Iterator[NodeRecord]:
    """Yield the operations that made the numbers of a tensor, through views and selections."""
    waiting, seen = [node], {node}
    while waiting:
        record = context.recording.nodes[waiting.pop(0)]
        if record.kind != "view" and record.operation not in _ASSEMBLING:
            yield record
            continue
        for ref in context.successors.get(record.index, ()):
            if ref.node not in seen:
                seen.add(ref.node)
                waiting.append(ref.node)


def _is_value(context: RuleContext, node: int) -> bool:
    """Return whether a tensor holds a number for each sample, or a selection among several.

    What is compared element by element, as images are, holds more.
    """
    for record in nodes_behind(context, node):
        shape = record.outputs[0]
        if record.operation in _SELECTIONS or (shape is not None and _is_column(shape.dims)):
            return True
        if record.kind != "view" and record.operation not in _PRODUCTS | SAME_NUMBERS:
            return False
    return False


def _is_column(dims: tuple[int, ...]) -> bool:
    return sum(size > 1 for size in dims) <= 1 or dims[-1] == 1
