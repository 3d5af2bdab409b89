"""The calls that make optimizers, and the parameters that they are given."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.variables import value_of

_OPTIM = "torch.optim."


def optimizer_call(source: SourceFile, site: Site | RelatedLocation | None) -> cst.Call | None:
    """Return the call on a line that makes an optimizer; None if several might."""
    if site is None or site.file != source.path:
        return None
    calls = source.on_line(site.line, cst.Call)
    of_torch = [one for one in calls if source.qualified(one.func).startswith(_OPTIM)]
    if of_torch:
        return only(of_torch)
    # Optimizers of other packages are known by what they are given.
    return only(
        one
        for one in calls
        if isinstance(source.parent(one), cst.Assign | cst.Return)
        and any(name.value in ("parameters", "params") for name in source.inside(one, cst.Name))
    )


def given_parameters(call: cst.Call) -> cst.BaseExpression | None:
    """Return the first argument of an optimizer, or of a clip."""
    for number, one in enumerate(call.args):
        if one.star:
            return None
        if (one.keyword is None and number == 0) or (
            one.keyword is not None and one.keyword.value in ("parameters", "params")
        ):
            return one.value
    return None


def resolved(source: SourceFile, value: cst.BaseExpression) -> cst.BaseExpression:
    """Return the value of a variable that is assigned once; anything else as it is."""
    return value_of(source, value) or value


def owner_of_all(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return `X` of `X.parameters()`, also within `list(…)`."""
    if not isinstance(node, cst.Call):
        return None
    function = node.func
    if isinstance(function, cst.Name) and function.value in ("list", "tuple"):
        return owner_of_all(node.args[0].value) if len(node.args) == 1 else None
    is_method = isinstance(function, cst.Attribute) and function.attr.value == "parameters"
    owner = function.value if isinstance(function, cst.Attribute) else None
    return owner if is_method and not node.args else None


def summands(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the operands of a sum of lists."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        yield from summands(node.left)
        yield from summands(node.right)
    else:
        yield node
