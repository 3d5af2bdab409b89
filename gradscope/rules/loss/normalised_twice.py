"""GS701: inputs of a loss that are normalised twice."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord, SoftmaxRecord
from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule, Line, related_line
from gradscope.rules.helpers.loss.flow import (
    origin_of_numbers,
    users_up_to_loss,
    without_constant,
)
from gradscope.rules.helpers.loss.inputs import LINEAR, averaged_probabilities, product_with_bias
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

LAYER = "a linear layer"
_NAMES = dict.fromkeys(LINEAR, LAYER) | {
    "SoftmaxBackward0": "softmax",
    "LogSoftmaxBackward0": "log_softmax",
    "SigmoidBackward0": "sigmoid",
    "ReluBackward0": "relu",
}
_WITH_WEIGHTS = LINEAR | {"BmmBackward0", "ConvolutionBackward0", "MvBackward0"}
_LAYERS = frozenset({"logsoftmax", "relu", "sigmoid", "softmax"})
"""Classes of layers that only normalise, in lower case."""
_TURNING = frozenset({"PermuteBackward0", "TransposeBackward0", "TBackward0"})
_SEVERITIES: dict[tuple[str, str], Severity] = {
    ("cross_entropy", "softmax"): "error",
    ("cross_entropy", "sigmoid"): "warning",
    ("cross_entropy", "relu"): "warning",
    ("cross_entropy", "log_softmax"): "note",
    ("log_softmax", "softmax"): "error",
    ("binary_cross_entropy_with_logits", "sigmoid"): "error",
    ("binary_cross_entropy_with_logits", "softmax"): "error",
    ("binary_cross_entropy_with_logits", "relu"): "error",
    ("nll_loss", "softmax"): "error",
    ("nll_loss", "sigmoid"): "error",
    ("kl_div", "softmax"): "error",
    ("ctc_loss", "softmax"): "error",
    ("nll_loss", LAYER): "error",
    ("kl_div", LAYER): "error",
    ("ctc_loss", LAYER): "error",
}
"""Severity by normalisation, or by loss that expects logarithms, and by its input."""

_EXPECTS = {
    "cross_entropy": "expects logits: it applies log_softmax itself",
    "log_softmax": "normalises them again",
    "binary_cross_entropy_with_logits": "expects logits: it applies sigmoid itself",
    "nll_loss": "expects log-probabilities",
    "kl_div": "expects log-probabilities",
    "ctc_loss": "expects log-probabilities",
}
_OF_LOGARITHMS = ("nll_loss", "kl_div", "ctc_loss")
_OVER_CLASSES = ("cross_entropy", "nll_loss")
"""Loss functions whose input has its classes in the second dimension."""
_OF_LOG_PROBABILITIES = ("nll_loss", "ctc_loss")
"""Loss functions whose input must sum to 1 over its classes, after the exponential."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """The first and the second normalisation."""

    first: NodeRecord
    second: str
    site: int | None
    """Line of the second normalisation."""


@dataclass(frozen=True, slots=True)
class _Across:
    """A normalisation along another dimension than that of the classes."""

    node: NodeRecord
    dimension: int
    size: int
    classes: int
    """Dimension of the classes, in the input of the loss."""
    loss: ComparisonRecord


def _edited_line(finding: Finding) -> Line | None:
    """Return the line of a loss that expects log-probabilities and gets those of no function."""
    evidence = dict(finding.evidence)
    is_missing = evidence.get("first") == LAYER and evidence["second"] == "nll_loss"
    return (is_missing and related_line(finding)) or finding.location


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisedTwice(Rule):
    """A loss that expects logits gets probabilities and normalises them again.

    What it finds:
        A softmax, or the exponential of a `log_softmax`, before `cross_entropy`, before a
        `log_softmax` of the loss, or before `binary_cross_entropy_with_logits`; a sigmoid before
        the latter, or before `cross_entropy` (a warning); before `nll_loss`, `kl_div` or `ctc_loss`
        a softmax without its logarithm, or the output of a linear layer. A `log_softmax` before
        `cross_entropy` changes no number and is a note. A ReLU as the last layer, whose logits are
        never below 0, is a warning before `cross_entropy`. Before `nll_loss` and `ctc_loss` also a
        `log_softmax` along another dimension than that of the classes, such as the batch.

    Why it matters:
        The softmax of ten probabilities is between 0.085 and 0.232. The loss can never become
        small, its gradient is weak, and a class that is certain and wrong gets none. Nothing fails,
        and accuracy rises slowly. `nll_loss` of logits falls below zero without end: it raises the
        logit of the target and never lowers those of the other classes. Probabilities along the
        batch make the examples compete with each other, and not the classes. A logit that a ReLU
        cuts off gets no gradient, and its sigmoid cannot fall below one half.

    How it is measured:
        The rule follows the graph from the input of the loss back to the operation that made its
        numbers, through views, selections, casts, clamping, stacking, dropout and (weighted) means
        of probabilities. Two softmaxes count only along the same dimension, and only if no weights
        come between the second and the loss. The dimension of a `log_softmax` is compared with that
        of the classes of the loss: the second one, and the last one of `ctc_loss`. Behind views
        only its size is compared. There is no threshold.

    How to fix it:
        Return logits from the model, and apply softmax or sigmoid only where probabilities are
        read. Before `nll_loss`, `kl_div` and `ctc_loss` use `log_softmax` along the classes.

    Fix safety:
        Safe. The first normalisation is removed, or becomes `log_softmax` before a loss of
        logarithms. Code that reads the model's output as probabilities must normalise it itself
        afterwards. No edit if the normalisation is not the only one on its line. `nll_loss` of
        logits becomes `cross_entropy`, if the file has no other. A wrong dimension becomes the last
        one, or the second one, whichever the run shows to hold the classes.

    When it may be wrong:
        If bounded logits are intended. Probabilities that are scaled by a factor before they are
        normalised again count as intended and are not reported.

    Source:
        torch documentation of `CrossEntropyLoss` ("input is expected to contain the unnormalized
        logits"), `BCEWithLogitsLoss`, `NLLLoss` and `KLDivLoss`.
        lightning-bolts issue 654: softmax before `cross_entropy`.
    """

    code: ClassVar[str] = "GS701"
    name: ClassVar[str] = "normalised-twice"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS106",)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="safe", line=_edited_line, removes_operation=True
    )
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that normalises first."""
        by_line: dict[Site | None, list[_Pair]] = {}
        for pair in _pairs(context):
            site = _made_at(context, pair.first) or context.site(pair.site)
            by_line.setdefault(site, []).append(pair)
        for site, pairs in by_line.items():
            yield self._finding(context, site, pairs)
        lines: dict[Site | None, list[_Across]] = {}
        for one in _across(context):
            lines.setdefault(_made_at(context, one.node), []).append(one)
        for site, found in lines.items():
            yield self._of_dimension(context, site, found)

    def _of_dimension(
        self, context: RuleContext, site: Site | None, found: list[_Across]
    ) -> Finding:
        one = found[0]
        name, loss = _NAMES[one.node.operation], one.loss.operation
        return self.finding(
            context,
            message=(
                f"{loss} gets the result of {name} along dimension {one.dimension}, of size "
                f"{one.size}, but expects log-probabilities of its "
                f"{one.loss.left.dims[one.classes]} classes: they compete along the wrong dimension"
            ),
            remedy=f"apply {name} along the dimension of the classes",
            site=site,
            related=(
                context.related(
                    one.loss.site if context.site(one.loss.site) != site else None,
                    f"{loss} {_EXPECTS[loss]}",
                ),
            ),
            severity="error",
            evidence={
                "operation": name,
                "dimension": one.dimension,
                "dimension_of_classes": one.classes,
            },
            count=len(found),
        )

    def _finding(self, context: RuleContext, site: Site | None, pairs: list[_Pair]) -> Finding:
        first, second = _name(context, pairs[0].first) or "", pairs[0].second
        module = context.module_of(pairs[0].first)
        positions = (
            (pairs[0].site, f"{second} {_EXPECTS[second]}"),
            (pairs[0].first.site, f"{first} is called here"),
        )
        return self.finding(
            context,
            message=_message(first, second),
            remedy=_remedy(first, second),
            site=site,
            related=(
                context.related(position, text)
                for position, text in positions
                if context.site(position) != site
            ),
            severity=_SEVERITIES[second, first],
            modules=() if module is None else (module,),
            evidence={"first": first, "second": second},
            count=len(pairs),
        )


def _pairs(context: RuleContext) -> Iterator[_Pair]:
    """Yield pairs of normalisations."""
    dimensions = {
        record.node: record.dimension for record in context.recording.evidence_of(SoftmaxRecord)
    }
    known = set()
    for record in context.recording.evidence_of(ComparisonRecord):
        first = _first_of_loss(context, record)
        if first is not None:
            known.add(first.index)
            dims = record.left.dims
            classes = min(1, len(dims) - 1) if record.operation in _OVER_CLASSES else None
            position = dimensions.get(_logarithm(context, first).index)
            if _is_same_dimension(context, first, position, dims, classes):
                yield _Pair(first, record.operation, record.site)
    for node, dimension in dimensions.items():
        second = context.recording.nodes[node]
        first = _first_by_hand(context, second)
        dims = second.dims() or ()
        if (
            first is not None
            and first.index not in known
            and _is_same_dimension(
                context, first, dimensions.get(_logarithm(context, first).index), dims, dimension
            )
        ):
            yield _Pair(first, "log_softmax", second.site)


def _across(context: RuleContext) -> Iterator[_Across]:
    """Yield the normalisations along another dimension than that of the classes of their loss."""
    dimensions = {
        record.node: record.dimension for record in context.recording.evidence_of(SoftmaxRecord)
    }
    for record in context.recording.evidence_of(ComparisonRecord):
        if record.operation not in _OF_LOG_PROBABILITIES or record.left_tensor is None:
            continue
        node = origin_of_numbers(context, record.left_tensor.node)
        if node is not None and node.operation == "LogBackward0":
            inputs = context.successors.get(node.index, ())
            node = origin_of_numbers(context, inputs[0].node) if inputs else None
            node = without_constant(context, node)
        shape = None if node is None or not node.outputs else node.outputs[0]
        if node is None or shape is None or node.index not in dimensions:
            continue
        dims, position = record.left.dims, dimensions[node.index]
        classes = len(dims) - 1 if record.operation == "ctc_loss" else min(1, len(dims) - 1)
        if not dims or prod(shape.dims) != prod(dims):  # some of them were picked
            continue
        size = shape.dims[position]
        is_turned = shape.dims != dims or node.index != record.left_tensor.node
        if size != dims[classes] or (position != classes and not is_turned):
            yield _Across(node, position, size, classes, record)


def _first_of_loss(context: RuleContext, record: ComparisonRecord) -> NodeRecord | None:
    """Return the normalisation of a loss function's input, None if it should have one."""
    left = record.left_tensor
    first = None if left is None else _source(context, averaged_probabilities(context, left.node))
    wrong = first is not None and (record.operation, _name(context, first)) in _SEVERITIES
    return first if wrong else None


def _first_by_hand(context: RuleContext, second: NodeRecord) -> NodeRecord | None:
    """Return the softmax before a log_softmax that belongs to the loss, None without one.

    Where weights come after it, it is part of the model, which may normalise freely.
    """
    inputs = context.successors.get(second.index, ())
    if second.operation != "LogSoftmaxBackward0" or not inputs:
        return None
    first = _source(context, inputs[0].node)
    if first is None or _name(context, first) != "softmax":
        return None
    users = users_up_to_loss(context, second.index)
    return None if any(user.operation in _WITH_WEIGHTS for user in users) else first


def _source(context: RuleContext, node: int) -> NodeRecord | None:
    """Return the normalisation that made a tensor's values, None for any other."""
    found = origin_of_numbers(context, node)
    if found is not None and found.operation == "AddBackward0":
        found = product_with_bias(context, found)
    return found if found is not None and _name(context, found) is not None else None


def _name(context: RuleContext, node: NodeRecord) -> str | None:
    """Return what a normalisation is called; None for other operations."""
    is_exponential = _logarithm(context, node) is not node
    return "softmax" if is_exponential else _NAMES.get(node.operation)


def _logarithm(context: RuleContext, node: NodeRecord) -> NodeRecord:
    """Return the log_softmax whose exponential a node is, otherwise the node itself."""
    inputs = context.successors.get(node.index, ())
    if node.operation != "ExpBackward0" or len(inputs) != 1:
        return node
    found = origin_of_numbers(context, inputs[0].node)
    return found if found is not None and found.operation == "LogSoftmaxBackward0" else node


def _is_same_dimension(
    context: RuleContext,
    first: NodeRecord,
    position: int | None,
    dims: tuple[int, ...],
    dimension: int | None,
) -> bool:
    """Return whether two operations normalise along the same dimension.

    Views may lie between them: then the dimension has the same place from the front or the back,
    or the tensor was turned, and in any case it has the same size.

    Args:
        context: What is judged.
        first: The operation that normalised first.
        position: Its dimension; None where it has none, as a sigmoid.
        dims: The shape of what is normalised again.
        dimension: The dimension along which that happens; None where along none.
    """
    shape = first.outputs[0]
    if position is None or dimension is None or shape is None or not dims or not shape.dims:
        return True
    if shape.dims[position] != dims[dimension]:
        return False
    if position == dimension or position - len(shape.dims) == dimension - len(dims):
        return True
    return any(user.operation in _TURNING for user in users_up_to_loss(context, first.index))


def _made_at(context: RuleContext, node: NodeRecord) -> Site | None:
    """Return the line to change: that of the layer in an `nn.Sequential`, or that of the call."""
    call = None if node.module_call is None else context.recording.calls[node.module_call]
    if call is None:
        return context.site(node.site)
    module = context.recording.modules[call.module]
    is_layer = module.class_name.lower().replace("2d", "") in _LAYERS
    parent = None if module.parent is None else context.recording.modules[module.parent]
    if not is_layer or parent is None or parent.class_name != "Sequential":
        return context.site(node.site)
    definition = context.site(module.site)
    if definition is None:
        return context.site(node.site)
    return _line_that_names(context, definition, module.class_name)


def _line_that_names(context: RuleContext, start: Site, class_name: str) -> Site:
    """Return the first line of a statement that makes a layer of a class."""
    for record in context.recording.evidence_of(SourceRecord):
        if record.file != start.file or start.line < record.first:
            continue
        for number, text in enumerate(record.lines, record.first):
            if number >= start.line and f"{class_name}(" in text:
                return replace(start, line=number, source=text.strip())
    return start


def _message(first: str, second: str) -> str:
    if first == "log_softmax":
        return (
            "log_softmax before cross_entropy is computed twice, which does not change the result"
        )
    if first == "relu":
        return f"{second} gets the result of relu, but expects logits of either sign"
    if second == "log_softmax":
        return "log_softmax normalises the output of softmax again"
    return f"{second} gets the result of {first}, but {_EXPECTS[second]}"


def _remedy(first: str, second: str) -> str:
    if first == "log_softmax":
        return "use nll_loss, or remove log_softmax"
    if first == LAYER:
        return "apply log_softmax to it" + (", or use cross_entropy" * (second == "nll_loss"))
    if second in _OF_LOGARITHMS:
        return "use log_softmax instead"
    return f"remove {first} and pass the logits to {second}"
