"""Removes the first of two normalisations, takes its logarithm, or adds one that is missing."""

from collections import Counter
from collections.abc import Iterator

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.loss.normalised_twice import LAYER
from gradscope.source_edits.arguments import without_argument
from gradscope.source_edits.removed_operations import without_operation
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.variables import reads_behind

_LAYERS = {
    "softmax": ("Softmax", "Softmax2d"),
    "sigmoid": ("Sigmoid",),
    "relu": ("ReLU",),
    "log_softmax": ("LogSoftmax",),
}
_OF_LOGARITHMS = ("nll_loss", "kl_div", "ctc_loss")
_FUNCTIONAL = "torch.nn.functional"
_FOR_LOGITS = {
    "torch.nn.functional.nll_loss": "cross_entropy",
    "torch.nn.NLLLoss": "CrossEntropyLoss",
}
"""Loss functions of log-probabilities, and the name of the one that takes logits."""


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the line that normalises first."""
    source = files.at(finding.location)
    evidence = dict(finding.evidence)
    if "first" not in evidence:
        if source is not None and finding.location is not None:
            yield from _along_classes(source, finding.location.line, str(evidence["operation"]))
        return
    first, second = str(evidence["first"]), str(evidence["second"])
    if (first, second) == (LAYER, "nll_loss"):
        related = finding.related[0] if finding.related else None
        yield from _of_logits(files.at(related or finding.location))
        return
    takes_logarithm = second in _OF_LOGARITHMS
    if source is None or finding.location is None or (takes_logarithm and first != "softmax"):
        return
    layers = {path.rpartition(".")[2] for path in finding.modules}
    found = only(_found(source, finding.location.line, first, layers))
    if found is None:
        return
    if _is_used_elsewhere(source, finding.location.line) or _has_several_uses(context, finding):
        return
    changes = found.with_logarithm() if takes_logarithm else found.removed()
    if changes:
        yield source.edits(changes)


def _along_classes(source: SourceFile, line: int, operation: str) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits of a normalisation's dimension to the last one, and to the second one.

    The run tells which of them holds the classes.
    """
    dimensions = [
        one
        for call in source.on_line(line, cst.Call)
        if (one := _dimension(source, call, operation)) is not None
    ]
    dimension = only(dimensions)
    if dimension is None:
        return
    for number in ("-1", "1"):
        if source.code(dimension) != number:
            yield source.edits({dimension: cst.parse_expression(number)})


def _dimension(source: SourceFile, call: cst.Call, operation: str) -> cst.BaseExpression | None:
    """Return the number of a normalisation's dimension; None for another call."""
    name = source.qualified(call.func)
    is_function = name in (f"torch.{operation}", f"torch.nn.functional.{operation}")
    is_layer = name in {f"torch.nn.{one}" for one in _LAYERS.get(operation, ())}
    is_attribute = not name and isinstance(call.func, cst.Attribute)
    is_method = is_attribute and source.code(call.func).rpartition(".")[2] == operation
    if not (is_function or is_layer or is_method):
        return None
    position = 1 if is_function else 0
    plain = [one.value for one in call.args if one.keyword is None and not one.star]
    named = [
        one.value
        for one in call.args
        if one.keyword is not None and one.keyword.value in ("dim", "axis")
    ]
    given = only([*plain[position : position + 1], *named])
    is_number = given is not None and source.code(given).lstrip("-").isdigit()
    return given if is_number else None


def _of_logits(source: SourceFile | None) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of `nll_loss` to `cross_entropy`, which takes logits and the same arguments.

    None if the file has several, such as another one for the evaluation.
    """
    calls = () if source is None else source.all(cst.Call)
    call = only(one for one in calls if source and source.qualified(one.func) in _FOR_LOGITS)
    if source is not None and call is not None and isinstance(call.func, cst.Attribute):
        renamed = cst.Name(_FOR_LOGITS[source.qualified(call.func)])
        yield source.edits({call.func.attr: renamed})


def _is_used_elsewhere(source: SourceFile, line: int) -> bool:
    """Return whether a variable that the line assigns is used more than once behind it.

    Other uses than the loss may need probabilities.
    """
    for statement in source.on_line(line, cst.Assign):
        for target in statement.targets:
            uses = reads_behind(source, statement, source.code(target.target))
            if len(uses) > 1:
                return True
    return False


def _has_several_uses(context: RuleContext, finding: Finding) -> bool:
    """Return whether the loss depends on the normalised tensor in several ways."""
    first = str(dict(finding.evidence)["first"]).replace("_", "")
    nodes = {
        node.index
        for node in context.recording.nodes
        if context.site(node.site) == finding.location and first in node.operation.lower()
    }
    uses = Counter(edge.target for edge in context.recording.edges if edge.target in nodes)
    return any(number > 1 for number in uses.values())


def _found(source: SourceFile, line: int, first: str, layers: set[str]) -> Iterator["_Found"]:
    """Yield all calls on a line that may be the first normalisation."""
    of_torch = (f"torch.{first}", f"torch.nn.functional.{first}")
    for call in source.on_line(line, cst.Call):
        name = source.qualified(call.func)
        if name in of_torch:
            value = _tensor(call)
            yield from () if value is None else (_Applied(source, call, call, value),)
        elif name in {f"torch.nn.{name}" for name in _LAYERS[first]}:
            yield from _made(source, call)
        elif not name and isinstance(call.func, cst.Attribute):
            yield from _of_method(source, call, call.func, first, layers)


def _made(source: SourceFile, call: cst.Call) -> Iterator["_Found"]:
    """Yield a layer that is called where it is made, or is in an `nn.Sequential`."""
    parent = source.parent(call)
    if isinstance(parent, cst.Call) and parent.func is call and parent.args:
        yield _Applied(source, parent, call, parent.args[0].value)
        return
    outer = source.parent(parent)
    if isinstance(parent, cst.Arg) and isinstance(outer, cst.Call):
        is_sequential = source.qualified(outer.func) == "torch.nn.Sequential"
        yield from (_Layer(source, call, parent, outer),) if is_sequential else ()


def _of_method(
    source: SourceFile, call: cst.Call, function: cst.Attribute, first: str, layers: set[str]
) -> Iterator["_Found"]:
    """Yield a call such as `x.softmax(-1)`, or of a layer by its name, as `self.softmax(x)`."""
    if function.attr.value in layers and _is_self(function.value) and len(call.args) == 1:
        yield _Applied(source, call, _maker(source, function), call.args[0].value)
    elif function.attr.value == first and not _is_self(function.value):
        yield _Applied(source, call, call, function.value)


def _maker(source: SourceFile, layer: cst.Attribute) -> cst.Call | None:
    """Return the call that makes a layer which is used once; None if there are several."""
    name = source.code(layer)
    named = [one for one in source.all(cst.Attribute) if source.code(one) == name]
    made = only(
        one.value
        for one in source.all(cst.Assign)
        if [source.code(target.target) for target in one.targets] == [name]
    )
    return made if isinstance(made, cst.Call) and len(named) == 2 else None


def _is_self(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "self"


def _tensor(call: cst.Call) -> cst.BaseExpression | None:
    """Return the input of a function."""
    for one in call.args:
        if not one.star and (one.keyword is None or one.keyword.value == "input"):
            return one.value
    return None


@dataclass(frozen=True, slots=True)
class _Applied:
    """A normalisation that is applied to a tensor."""

    source: SourceFile
    whole: cst.Call
    """The call that returns the normalised tensor."""
    named: cst.Call | None
    """The call whose function names the normalisation; None for a layer of unknown origin."""
    value: cst.BaseExpression

    def removed(self) -> Changes:
        """Replace it by its input."""
        return without_operation(self.source, self.whole, self.value)

    def with_logarithm(self) -> Changes:
        """Replace softmax by log_softmax."""
        return {} if self.named is None else _renamed(self.named)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A normalisation that is a layer of an `nn.Sequential`."""

    source: SourceFile
    call: cst.Call
    argument: cst.Arg
    outer: cst.Call

    def removed(self) -> Changes:
        """Take the layer out of the list."""
        arguments = self.outer.args
        if len(arguments) < 2:
            return {}
        return {
            self.outer: self.outer.with_changes(args=without_argument(arguments, self.argument))
        }

    def with_logarithm(self) -> Changes:
        """Replace softmax by log_softmax."""
        return _renamed(self.call)


_Found = _Applied | _Layer


def _renamed(call: cst.Call) -> Changes:
    """Return the change of the last part of a function's name to that of the logarithm."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else None
    names = {"softmax": "log_softmax", "Softmax": "LogSoftmax"}
    if name is None or name.value not in names:
        return {}
    return {name: cst.Name(names[name.value])}
