"""The calls that make optimizers, and the parameters that they are given."""

from collections.abc import Iterable, Iterator

import libcst as cst

from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.source_edits.moved_statements import moved_after, moved_before
from gradscope.source_edits.passes import loop_around
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.statements import line_of, statement_on
from gradscope.source_edits.variables import names_in, value_of

_OPTIM = "torch.optim."


def optimizer_call(source: SourceFile, site: Site | RelatedLocation | None) -> cst.Call | None:
    """Return the call on a line that makes an optimizer; None if several might."""
    if site is None or site.file != source.path:
        return None
    calls = source.on_line(site.line, cst.Call)
    of_torch = [one for one in calls if source.qualified(one.func).startswith(_OPTIM)]
    if of_torch:
        return only(of_torch)
    return only(
        one
        for one in calls
        if isinstance(source.parent(one), cst.Assign | cst.Return)
        and any(name.value in ("parameters", "params") for name in source.inside(one, cst.Name))
    )


def added_behind(source: SourceFile, lines: Iterable[Site | RelatedLocation]) -> Changes:
    """Return the change that inserts `add_param_group` behind the line that makes a module.

    Empty if the optimizer or the module has no name, or if they are of two functions.
    """
    own = [one for one in lines if one.file == source.path]
    made = only(one for one in own if optimizer_call(source, one) is not None)
    optimizer = None if made is None else _assigned_on(source, made.line)
    others = (_assigned_on(source, one.line) for one in own if one is not made)
    module = only(one for one in others if one is not None)
    if optimizer is None or module is None or source.start(module) < source.start(optimizer):
        return {}
    if source.around(module, cst.FunctionDef) is not source.around(optimizer, cst.FunctionDef):
        return {}
    if loop_around(source, module) is not loop_around(source, optimizer):
        return {}  # a group would be added each time
    held, name = (source.code(one.targets[0].target) for one in (optimizer, module))
    line = line_of(f'{held}.add_param_group({{"params": {name}.parameters()}})')
    return source.inserted_after(module, line.body[0])


def _assigned_on(source: SourceFile, line: int) -> cst.Assign | None:
    """Return the assignment of a call to a name or attribute on a line; None if there are more."""
    return only(
        one
        for one in source.on_line(line, cst.Assign)
        if len(one.targets) == 1
        and isinstance(one.targets[0].target, cst.Name | cst.Attribute)
        and isinstance(one.value, cst.Call)
    )


def made_behind(source: SourceFile, lines: Iterable[Site | RelatedLocation]) -> Changes:
    """Return the change that makes an optimizer behind the last of other lines.

    The optimizer's line is moved down; if a line between them needs the optimizer, the other line
    is moved up. Empty if they are not in one block, or if the other line does not name what the
    optimizer is given.
    """
    own = [one for one in lines if one.file == source.path]
    made = only(one for one in own if optimizer_call(source, one) is not None)
    optimizer = None if made is None else statement_on(source, made.line)
    if optimizer is None or made is None:
        return {}
    call = optimizer_call(source, made)
    given = None if call is None else given_parameters(call)
    names = set() if given is None else names_in(source, given)
    others = [statement_on(source, one.line) for one in own if one is not made]
    later = [
        one
        for one in others
        if one is not None
        and source.parent(one) is source.parent(optimizer)
        and source.start(one) > source.start(optimizer)
        and names & names_in(source, one)
    ]
    last = max(later, key=source.start, default=None)
    if last is None:
        return {}
    down = moved_after(source, optimizer.body[0], last.body[0], changes_other=True)
    if down or any(one is not last for one in later):
        return down
    return moved_before(source, last.body[0], optimizer.body[0], changes_other=True)


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
