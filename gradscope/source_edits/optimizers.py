"""Finds the calls that make optimizers, and gives them what is made or replaced behind them."""

from collections.abc import Iterable, Iterator

import libcst as cst

from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.source_edits.calls import statements_above
from gradscope.source_edits.moved_statements import moved_after, moved_before
from gradscope.source_edits.passes import loop_around
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.statements import line_of
from gradscope.source_edits.variables import is_local, is_visible, names_in, reads, value_of

_OPTIM = "torch.optim."


Lines = Iterable[Site | RelatedLocation]
_TAKING = ("step", "unscale_")
"""Methods that take an optimizer and keep no reference to it."""


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


def added_behind(source: SourceFile, lines: Lines) -> Changes:
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


def made_behind(source: SourceFile, lines: Lines) -> Changes:
    """Return the change that makes an optimizer behind the last of other lines.

    The optimizer's line is moved down; if a line between them needs the optimizer, the other line
    is moved up. A function that makes either counts as the line that calls it. Empty if they are
    not in one block, or if the other line does not name what the optimizer is given.
    """
    made, others = _divided(source, lines)
    for optimizer in () if made is None else statements_above(source, made.line):
        names = _needed(source, optimizer)
        later = [
            one
            for one in others
            if source.parent(one) is source.parent(optimizer)
            and source.start(one) > source.start(optimizer)
            and names & names_in(source, one)
        ]
        last = max(later, key=source.start, default=None)
        if last is None:
            continue
        down = moved_after(source, optimizer.body[0], last.body[0], changes_other=True)
        # Of several lines, it would not be enough to move the last one up.
        if down or any(one is not last for one in later):
            return down
        return moved_before(source, last.body[0], optimizer.body[0], changes_other=True)
    return {}


def _divided(
    source: SourceFile, lines: Lines
) -> tuple[Site | RelatedLocation | None, list[cst.SimpleStatementLine]]:
    """Return the line that makes the optimizer, and the statements that lead to the others."""
    own = [one for one in lines if one.file == source.path]
    made = only(one for one in own if optimizer_call(source, one) is not None)
    found = [
        statement
        for one in own
        if one is not made
        for statement in statements_above(source, one.line)
    ]
    return made, list(dict.fromkeys(found))


def _needed(source: SourceFile, optimizer: cst.SimpleStatementLine) -> set[str]:
    """Return the variables that lead to the parameters which a statement gives an optimizer."""
    statement = optimizer.body[0]
    call = only(
        one
        for one in source.inside(statement, cst.Call)
        if source.qualified(one.func).startswith("torch.optim.")
    )
    given = None if call is None else given_parameters(call)
    value = statement.value if isinstance(statement, cst.Assign | cst.Return) else None
    whole = given or value
    return set() if whole is None else names_in(source, whole)


def restored(source: SourceFile, lines: Lines) -> Changes:
    """Return the change of `model = copy.deepcopy(best)` to one of the model's values.

    Empty unless the optimizer is given the model's parameters, and the copy is in another block.
    """
    made, others = _divided(source, lines)
    call = None if made is None else optimizer_call(source, made)
    given = None if call is None else given_parameters(call)
    owner = None if given is None else owner_of_all(given)
    if call is None or owner is None:
        return {}
    line = only(one for one in others if _copied(source, one, source.code(owner)) is not None)
    if line is None or loop_around(source, line) is loop_around(source, call):
        return {}
    name, copied = source.code(owner), _copied(source, line, source.code(owner))
    assert copied is not None
    return {line.body[0]: line_of(f"{name}.load_state_dict({copied}.state_dict())").body[0]}


def _copied(source: SourceFile, line: cst.SimpleStatementLine, name: str) -> str | None:
    """Return `best` of `name = copy.deepcopy(best)`."""
    statement = line.body[0]
    if not isinstance(statement, cst.Assign) or not isinstance(statement.value, cst.Call):
        return None
    call = statement.value
    if not call.args:
        return None
    is_copy = source.qualified(call.func) == "copy.deepcopy" and len(call.args) == 1
    is_target = [source.code(one.target) for one in statement.targets] == [name]
    is_plain = is_copy and isinstance(call.args[0].value, cst.Name | cst.Attribute)
    copied = source.code(call.args[0].value)
    return copied if is_plain and is_target and copied != name else None


def made_again(source: SourceFile, lines: Lines) -> Changes:
    """Return the change that makes an optimizer anew where its model is replaced.

    Empty if something else holds the optimizer, such as a scheduler, or if the line that replaces
    the model is in neither the same function nor the same class.
    """
    made, others = _divided(source, lines)
    for optimizer in () if made is None else statements_above(source, made.line):
        statement = optimizer.body[0]
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            continue
        later = [one for one in others if _may_repeat(source, optimizer, one)]
        if later and not _is_held(source, statement, later[0]):
            # libcst refuses a node that stands twice in a tree.
            return source.inserted_after(later[0].body[0], statement.deep_clone())
    return {}


def _may_repeat(
    source: SourceFile, optimizer: cst.SimpleStatementLine, line: cst.SimpleStatementLine
) -> bool:
    """Return whether an optimizer can be made behind another line, which is not repeated for it."""
    if source.parent(line) is source.parent(optimizer):
        return False
    function = source.around(optimizer, cst.FunctionDef)
    if source.around(line, cst.FunctionDef) is function:
        is_later = source.start(line) > source.start(optimizer)
        return is_later and bool(_needed(source, optimizer) & names_in(source, line))
    kinds = [source.around(one, cst.ClassDef) for one in (line, optimizer)]
    locals_ = {one.value for one in source.inside(optimizer, cst.Name) if is_local(source, one)}
    is_stored = isinstance(line.body[0], cst.Assign) and locals_ <= {"self"}
    return kinds[0] is not None and kinds[0] is kinds[1] and is_stored


def _is_held(source: SourceFile, made: cst.Assign, line: cst.CSTNode) -> bool:
    """Return whether a call may keep an optimizer that it got before another line.

    A call that is repeated with the line gets the new one.
    """
    function, loop = source.around(line, cst.FunctionDef), loop_around(source, line)
    is_stored = function is not source.around(made, cst.FunctionDef)
    repeated = () if loop is None else source.inside(loop, cst.Call)
    again = {id(one) for one in repeated}
    for node in reads(source, source.module, source.code(made.targets[0].target)):
        argument = source.parent(node)
        call = source.parent(argument)
        if not isinstance(argument, cst.Arg) or not isinstance(call, cst.Call):
            continue
        is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value in _TAKING
        is_before = is_stored or source.start(call) < source.start(line)
        if is_before and not is_method and id(call) not in again:
            return True
    return False


def stacked_values(source: SourceFile, lines: Lines) -> Changes:
    """Return the change that gives an optimizer the parameters that `stack_module_state` made."""
    own = [one for one in lines if one.file == source.path]
    made = only(one for one in own if optimizer_call(source, one) is not None)
    call = None if made is None else optimizer_call(source, made)
    given = None if call is None else given_parameters(call)
    stack = only(
        statement
        for one in own
        if one is not made
        for statement in source.on_line(one.line, cst.Assign)
        if isinstance(statement.value, cst.Call)
        if source.qualified(statement.value.func) == "torch.func.stack_module_state"
    )
    target = None if stack is None else stack.targets[0].target
    if given is None or not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return {}
    name = _seen_from(source, target.elements[0].value, given)
    if name is None:
        return {}
    stored = resolved(source, given)
    function = source.around(given, cst.FunctionDef) or source.module
    is_alone = len(list(reads(source, function, source.code(given)))) == 2  # and assigned
    old = stored if is_alone else given
    return {old: cst.parse_expression(f"{name}.values()")}


def _seen_from(
    source: SourceFile, stored: cst.BaseExpression, given: cst.BaseExpression
) -> str | None:
    """Return how code where an optimizer is made names what a class or function stores."""
    kinds = [source.around(one, cst.ClassDef) for one in (stored, given)]
    if isinstance(stored, cst.Name):
        return stored.value if is_visible(source, stored, given) else None
    if not isinstance(stored, cst.Attribute) or source.code(stored.value) != "self":
        return None
    if kinds[0] is kinds[1]:
        return source.code(stored)
    owner = owner_of_all(given)
    return None if owner is None else f"{source.code(owner)}.{stored.attr.value}"
