"""GS707: outputs of one example that depend on another."""

from collections.abc import Iterator
from math import prod
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import MixedExamplesRecord
from gradscope.recording.evidence.forward import ComparisonRecord, SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleCallRecord, NodeRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import origin_of_numbers, rows_selected_from
from gradscope.rules.helpers.loss.inputs import known_rows, square_scores
from gradscope.rules.helpers.loss.reordering_views import layers_over_examples, reordered_views
from gradscope.rules.rule import Rule

_CLASS_DIMENSIONS = {"ctc_loss": 2, "nll_loss": 1}
"""Dimension of the classes, of the input of losses that expect log-probabilities."""

_RESHAPING = frozenset({"reshape", "reshape_as", "unflatten", "view", "view_as"})

_NORMALISING = frozenset({"log_softmax", "normalize", "softmax", "softmin"})

_ELEMENTWISE = frozenset({"mul", "sub"})
"""Comparisons that are no losses."""

_SEQUENTIAL = frozenset(
    {"gru", "lstm", "multi_head_attention_forward", "rnn_relu", "rnn_tanh"}
    | {"scaled_dot_product_attention"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesMixed(Rule):
    """The output for one example depends on the other examples of the batch.

    What it finds:
        Operations that mix the examples of a batch: a `view` or `reshape` instead of a `transpose`
        or `permute`; a softmax or a normalisation over the dimension of the examples; a recurrent
        layer or an attention that treats examples as time steps because `batch_first=True` is
        missing; a loss of flattened predictions and targets with different orders of dimensions;
        a log_softmax before `nll_loss` or `ctc_loss` over another dimension than the classes; heads
        of an attention, or channels, that a view splits off or joins before they were transposed.

    Why it matters:
        Shapes fit, and the loss falls somewhat. The model learns from an example what belongs to
        another, and at inference its answer depends on what else is in the batch.

    How it is measured:
        The forward runs twice with the same random numbers, the second time with one example
        replaced by a copy of another, and batch normalisation in eval mode. The rule finds the
        first result that changes in the part of another example. It is reported if a reshaping, a
        normalising, a recurrent or an attention function made it; all but the first only within a
        model that returns something for each example. Other operations that mix examples, such as a
        similarity matrix, statistics of the batch, a permutation or a graph's edges, count as
        intended. A change is a relative difference above 1e-4. The forward of a training script is
        not repeated. There, the loss tells the number of examples: the length of its targets, or
        the number of rows of probabilities from each of which one is picked, or that targets weigh
        and sum. A softmax over a first
        dimension of this size is reported, unless another dimension has the same size or all others
        have size 1. So is a view of three dimensions or more, of which two neighbours change
        places, unless another view exchanges them back behind a slice, as for the scores of
        relative positions. Behind the first dimension that is a warning, of inspected models too:
        the examples stay apart. So is a view, of models too, that reads `[n, heads, time, size]` as
        `[n, time, heads * size]`, or the other way round. So is one that reads `[rows, parts *
        size]` as `[parts, rows, size]`, or the other way round, unless the parts divide the rows,
        and one that joins dimensions behind the classes although a softmax over the classes
        follows. So is a recurrent layer or an attention that runs over this dimension although the
        model then selects one of the second dimension, as in `out[:, -1]`. Of every loss it is
        known which shapes its operands had before `reshape(-1, …)`: `[time, batch, classes]` with
        targets `[batch, time]` are compared in the wrong order, and so are classes that were not
        the last dimension. A softmax of images or sequences of logits must run over the dimension
        that `cross_entropy` of the same logits takes for the classes. A log_softmax is compared
        with the loss that reads it through views: the dimension that it normalised must have as
        many elements as there are classes. Of `[n, time, classes]` with as many time steps as
        classes, `cross_entropy` takes the wrong dimension if a linear layer made the last one, and
        nothing exchanged the two; that is a warning.

    How to fix it:
        `transpose` or `permute` in place of `view`; the right `dim`; `batch_first=True`.

    When it may be wrong:
        If examples are meant to attend to each other, or if the assumed dimension of the examples
        is that of time. In scripts, cuDNN's recurrent layers are not judged: their graph does not
        tell which dimension is that of time.

    Source:
        torch documentation, `Tensor.view` and `torch.nn.LSTM`; Karpathy, "A Recipe for Training
        Neural Networks", "use backprop to chart dependencies".
        Measured: 8 of 8 such models of the tests, and none of 14 healthy ones, of which 5 let
        examples depend on each other on purpose.
    """

    code: ClassVar[str] = "GS707"
    name: ClassVar[str] = "examples-mixed"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS726",)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if context.run is None:
            return context.probe_skip_reason("mixed examples")
        reason = context.probe_skip_reason("comparisons")
        # Each of them is enough: not every finding needs the number of examples.
        is_known = _rows(context) is not None or any(_joined(context)) or _has_classes(context)
        if reason is not None or is_known or any(reordered_views(context)):
            return reason
        return "no loss tells which dimension is that of the examples"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the operation that mixes examples."""
        for record in context.recording.evidence_of(MixedExamplesRecord):
            if _is_mistake(record):
                yield self._finding(context, record)
        for comparison in _joined(context):
            yield from self._misjoined(context, comparison)
        yield from self._across_classes(context)
        yield from self._beside_classes(context)
        yield from self._of_square_scores(context)
        yield from self._of_views(context)
        rows = None if context.run is None else _rows(context)
        if rows is not None:
            yield from self._in_graph(context, rows)
            for call in {one.module: one for one in layers_over_examples(context, rows)}.values():
                yield self._over_examples(context, call, rows)

    def _misjoined(self, context: RuleContext, comparison: ComparisonRecord) -> Iterator[Finding]:
        words = _order(comparison)
        if words is None or comparison.left_from is None:
            return
        yield self.finding(
            context,
            message=f"{comparison.operation}() compares predictions with the targets of others: "
            f"{words}",
            remedy="use transpose() or permute() before reshape()",
            site=comparison.site,
            evidence={
                "operation": comparison.operation,
                "examples": comparison.left_from.dims[0],
            },
        )

    def _across_classes(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every loss of logarithms that were normalised along another axis."""
        softmaxes = {one.node: one for one in context.recording.evidence_of(SoftmaxRecord)}
        for comparison in context.recording.evidence_of(ComparisonRecord):
            position = _CLASS_DIMENSIONS.get(comparison.operation)
            if position is None or comparison.left_tensor is None or not comparison.left.dims:
                continue
            node, compared = rows_selected_from(context, comparison)
            first = origin_of_numbers(context, node)
            softmax = None if first is None else softmaxes.get(first.index)
            if first is None or softmax is None or first.outputs[0] is None:
                continue
            dims = first.outputs[0].dims
            classes = comparison.left.dims[min(position, len(comparison.left.dims) - 1)]
            is_whole = prod(dims) == prod(compared)  # not a part of the classes
            # Without a dimension of the size of the classes, no other `dim` would be right.
            if dims[softmax.dimension] == classes or classes not in dims or not is_whole:
                continue
            yield self.finding(
                context,
                message=(
                    f"{comparison.operation}() gets probabilities that sum to one over dimension "
                    f"{softmax.dimension} of {list(dims)}, not over the {classes} classes"
                ),
                remedy=f"normalise over the classes: dim={dims.index(classes) - len(dims)}",
                site=first.site,
                related=(context.related(comparison.site, "the loss"),),
                evidence={"operation": comparison.operation, "classes": classes},
            )

    def _beside_classes(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every softmax of logits over another dimension than their loss takes.

        So is one in a second term of the loss, as of Dice. Matrices may be read along both
        dimensions on purpose, as the similarities of two views are.
        """
        nodes, lines = context.recording.nodes, set[int | None]()
        losses = {
            one.left_tensor.node: one
            for one in context.recording.evidence_of(ComparisonRecord)
            if one.left_tensor is not None and _is_of_images(one)
        }
        for softmax in context.recording.evidence_of(SoftmaxRecord):
            inputs = context.successors.get(softmax.node, ())
            loss = losses.get(inputs[0].node) if len(inputs) == 1 else None
            node = nodes[softmax.node]
            if loss is None or softmax.dimension == 1 or node.site in lines:
                continue
            lines.add(node.site)
            yield self.finding(
                context,
                message=(
                    f"the probabilities of {list(loss.left.dims)} sum to one over dimension "
                    f"{softmax.dimension}, but cross_entropy() takes dimension 1 for the classes"
                ),
                remedy="normalise over the classes: dim=1",
                site=node.site,
                related=(context.related(loss.site, "the loss"),),
                evidence={"operation": "softmax", "classes": loss.left.dims[1]},
            )

    def _of_square_scores(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that takes time steps for classes."""
        for one in {one.site: one for one in square_scores(context)}.values():
            yield self.finding(
                context,
                message=(
                    f"cross_entropy() takes dimension 1 of {list(one.left.dims)} for the classes, "
                    "but a linear layer made them the last dimension"
                ),
                remedy="transpose(1, 2) the scores, or flatten scores and targets",
                site=one.site,
                severity="warning",
                evidence={"operation": one.operation, "classes": one.left.dims[1]},
            )

    def _of_views(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose view stands for a permutation."""
        compared = {
            (one.left_from.dims, one.left.dims)
            for one in _joined(context)
            if one.left_from is not None and _order(one) is not None
        }
        lines = {
            one.node.site: one
            for one in reordered_views(context)
            if (one.before, one.after) not in compared  # the loss that reads it is told
        }
        for node, before, after, is_certain in lines.values():
            yield self.finding(
                context,
                message=(
                    f"the numbers of {list(before)} are read as {list(after)}, without being "
                    "moved: view() and reshape() do not exchange dimensions"
                ),
                remedy="use transpose() or permute() before it",
                site=node.site,
                severity=None if is_certain else "warning",
                evidence={"operation": "view", "dimensions": len(after)},
            )

    def _in_graph(self, context: RuleContext, rows: int) -> Iterator[Finding]:
        """Yield a finding for every softmax of a graph that mixes its examples."""
        nodes = context.recording.nodes
        softmaxes = context.recording.evidence_of(SoftmaxRecord)
        found = [
            nodes[one.node]
            for one in softmaxes
            # Only a softmax over the first dimension mixes examples in a graph.
            if one.dimension == 0 and _is_over_rows(nodes[one.node], rows)
        ]
        for node in {node.site: node for node in found}.values():
            shape = node.outputs[0]
            yield self._finding(
                context,
                MixedExamplesRecord(
                    operation="softmax",
                    site=node.site,
                    rows=rows,
                    dims=() if shape is None else shape.dims,
                    # The graph shows the dimension itself: what a repeated forward has to guess is
                    # known here.
                    in_model=True,
                    is_per_example=True,
                    is_ambiguous=False,
                ),
            )

    def _over_examples(self, context: RuleContext, call: ModuleCallRecord, rows: int) -> Finding:
        name = context.recording.modules[call.module].class_name
        made, called = _line_of_layer(context, call.module), context.site(call.site)
        return self.finding(
            context,
            message=f"{name} takes the examples for time steps: the result for one example depends "
            f"on the other {rows - 1}",
            remedy="build the layer with batch_first=True",
            site=made or called,
            related=(context.related(called, "called here") if made is not None else None,),
            evidence={"operation": name, "examples": rows},
            count=rows,
        )

    def _finding(self, context: RuleContext, record: MixedExamplesRecord) -> Finding:
        what, remedy = _texts(record)
        return self.finding(
            context,
            message=f"{what}: the result for one example depends on the other {record.rows - 1}",
            remedy=remedy,
            site=record.site,
            evidence={"operation": record.operation, "examples": record.rows},
            count=record.rows,
        )


def _line_of_layer(context: RuleContext, module: int) -> Site | None:
    """Return the user's line that makes a layer, or a module of torch that contains it."""
    modules = context.recording.modules
    position: int | None = module
    while position is not None:
        line = context.site(modules[position].site)
        if line is not None and not line.is_installed:
            return line
        position = modules[position].parent
    return None


def _rows(context: RuleContext) -> int | None:
    """Return the number of examples, if the losses have one target for each and agree."""
    found = {
        one.right.dims[0]
        for one in context.recording.evidence_of(ComparisonRecord)
        if one.operation not in _ELEMENTWISE and one.right_tensor is None and _is_for_each(one)
    } or {*known_rows(context)}
    return found.pop() if len(found) == 1 else None


def _has_classes(context: RuleContext) -> bool:
    """Return whether a loss tells which dimension of its scores is that of the classes."""
    return any(
        one.operation in _CLASS_DIMENSIONS or _is_of_images(one)
        for one in context.recording.evidence_of(ComparisonRecord)
    )


def _is_of_images(one: ComparisonRecord) -> bool:
    """Return whether a cross-entropy gets scores `[n, classes, …]` of images or sequences."""
    return one.operation == "cross_entropy" and len(one.left.dims) > 2


def _is_for_each(one: ComparisonRecord) -> bool:
    left, right = one.left.dims, one.right.dims
    is_column = len(right) == 1 or (len(right) == 2 and right[1] == 1)
    is_joined = one.left_from is not None or one.right_from is not None
    # Joined dimensions, as `[batch * time]`, hide how many examples there are.
    return is_column and not is_joined and left[:1] == right[:1] and right[0] > 1


def _joined(context: RuleContext) -> Iterator[ComparisonRecord]:
    """Yield the losses of a prediction whose dimensions were joined."""
    for one in context.recording.evidence_of(ComparisonRecord):
        if one.operation not in _ELEMENTWISE and one.left_from is not None:
            yield one


def _order(comparison: ComparisonRecord) -> str | None:
    """Return how the order of the joined dimensions differs; None if it does not."""
    left, right = comparison.left_from, comparison.right_from
    if left is None:
        return None
    classes = comparison.left.dims[1:]
    first, second, *rest = left.dims
    # Where the last dimension has the size of the classes as well, it may hold them.
    is_moved = classes == (second,) and prod(rest) > 1 and rest[-1] != second
    if is_moved:
        return f"its classes are dimension 1 of {list(left.dims)}, not the last one"
    # With as many time steps as examples, the shapes do not tell the two apart.
    if right is None or len(right.dims) < 2 or first == second:
        return None
    if right.dims[:2] == (second, first) and tuple(rest[len(classes) :]) == right.dims[2:]:
        return f"they were {list(left.dims)} and {list(right.dims)} before they were flattened"
    return None


def _is_over_rows(node: NodeRecord, rows: int) -> bool:
    """Return whether the first dimension alone has the size of the examples."""
    dims = node.dims() or ()
    # A softmax over `[n, 1]` weighs the instances of one bag.
    return dims[:1] == (rows,) and rows not in dims[1:] and prod(dims[1:]) > 1


def _is_mistake(record: MixedExamplesRecord) -> bool:
    # A view keeps all numbers: examples that meet in one were to be permuted, in the loss as well.
    if record.operation in _RESHAPING:
        return True
    if not (record.in_model and record.is_per_example):
        return False
    if record.operation in _NORMALISING:
        return True
    # Two dimensions are one sequence without a batch, and a batch of one has nothing to mix.
    is_batch = len(record.dims) > 2 and record.dims[1] > 1
    return record.operation in _SEQUENTIAL and is_batch and not record.is_ambiguous


def _texts(record: MixedExamplesRecord) -> tuple[str, str]:
    """Return what an operation does, and what to do about it."""
    name = f"{record.operation}()"
    if record.operation in _RESHAPING:
        return f"{name} mixes examples", "use transpose() or permute() to swap dimensions"
    if record.operation in _NORMALISING:
        return (
            f"{name} runs over the examples of the batch",
            "give it the dimension of the features, such as dim=-1",
        )
    return f"{name} takes the examples for time steps", "build the layer with batch_first=True"
