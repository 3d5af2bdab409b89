"""Edits of what autograd refuses: a second backward, a tensor that is overwritten."""

from collections.abc import Callable, Iterator

import libcst as cst

from gradscope.recording.evidence.failures import AutogradErrorRecord, CarriedHistory
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.helpers.autograd_errors import errors_of, site_of
from gradscope.source_edits.calls import without_argument
from gradscope.source_edits.moved_statements import moved_after
from gradscope.source_edits.passes import call_on
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, method_call, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named
from gradscope.source_edits.variables import reads_behind


def backward_twice(fix: FixContext) -> Iterator[Edits]:
    """Detach a state between two steps, or keep the graph for a second backward."""
    context = fix.context
    records = [
        record
        for record in errors_of(context, "freed")
        if context.site(site_of(record, "forward", "reuse", "call")) == fix.site
    ]
    carried = {one for record in records for one in record.carried}
    # With several carried tensors, a detach of one leaves the graph of the others.
    if len(carried) != 1:
        record = only(records)
        if record is not None and not carried:
            yield from _keeping_graph(context, record, fix.files)
        return
    (one,) = carried
    statement = only(_stores(fix.source, one)) if one.is_replaced else None
    if statement is not None:
        yield from _detached(fix.source, statement, one.attribute)


def _keeping_graph(
    context: RuleContext, record: AutogradErrorRecord, files: SourceFiles
) -> Iterator[Edits]:
    """Yield the edit of the first of two `backward()` in a function without a step between them."""
    first, again = (context.site(site_of(record, role)) for role in ("freed", "call"))
    source = files.at(first)
    if source is None or first is None:
        return
    freeing = call_on(source, first, "backward")
    if freeing is None or freeing.args:
        return
    function = source.around(freeing, cst.FunctionDef)
    between = source.module if function is None else function
    end = source.end(between)
    # Without a line, the loss that the function returns is run backward by its caller.
    if again is not None:
        failing = call_on(source, again, "backward")
        if failing is None or function is not source.around(failing, cst.FunctionDef):
            return
        end = source.start(failing)
    # After a step, a kept graph would still fail, or give gradients of weights that have changed.
    if source.start(freeing) >= end or any(
        source.start(freeing) < source.start(one) < end
        for one in source.inside(between, cst.Call)
        if isinstance(one.func, cst.Attribute) and one.func.attr.value == "step"
    ):
        return
    kept = cst.parse_expression("f(retain_graph=True)")
    assert isinstance(kept, cst.Call)
    yield source.edits({freeing: freeing.with_changes(args=kept.args)})


def _stores(source: SourceFile, carried: CarriedHistory) -> Iterator[cst.Assign]:
    """Yield the assignments to a state in methods of its class that run in a forward."""
    owner, _, attribute = carried.name.rpartition(".")
    class_name = owner.rpartition(".")[2]
    for statement in source.all(cst.Assign):
        function = source.around(statement, cst.FunctionDef)
        kind = source.around(statement, cst.ClassDef)
        if function is None or kind is None or kind.name.value != class_name:
            continue
        # These set the state to its start, which has no history to detach.
        if function.name.value == "__init__" or "reset" in function.name.value:
            continue
        if any(
            _is_own(one, attribute)
            for target in statement.targets
            for one in source.inside(target, cst.Attribute)
        ):
            yield statement


def _is_own(node: cst.Attribute, attribute: str) -> bool:
    is_self = isinstance(node.value, cst.Name) and node.value.value == "self"
    return is_self and node.attr.value == attribute


def _detached(source: SourceFile, statement: cst.Assign, attribute: str) -> Iterator[Edits]:
    """Yield the edits that detach the state when it is stored, then when it is read.

    When it is stored, it may be a tensor or a tuple of tensors.
    """
    is_alone = len(statement.targets) == 1 and isinstance(
        statement.targets[0].target, cst.Attribute
    )
    if is_alone:
        value = statement.value
        new = method_call(value, "detach")
        yield source.edits({value: in_place_of(source, value, new)})
        yield source.edits({value: cst.parse_expression(_parts(source.code(value)))})
    else:
        for detached in (f"{attribute}.detach()", _parts(attribute)):
            line = cst.parse_statement(f"{attribute} = {detached}")
            assert isinstance(line, cst.SimpleStatementLine)
            yield source.edits(source.inserted_after(statement, line.body[0]))
    read = only(
        one
        for one in source.inside(statement.value, cst.Attribute)
        if _is_own(one, attribute.rpartition(".")[2])
    )
    if read is not None:
        yield source.edits({read: method_call(read, "detach")})


def _parts(code: str) -> str:
    return f"tuple(part.detach() for part in {code})"


_OPERATORS: dict[type[cst.BaseAugOp], Callable[[], cst.BaseBinaryOp]] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.DivideAssign: cst.Divide,
    cst.PowerAssign: cst.Power,
}
_VIEWS = ("chunk", "expand", "select", "split", "unbind", "view", "view_as", "narrow", "T", "mT")
"""Methods whose result shares memory with a tensor that may be meant to change."""


def in_place_modification(fix: FixContext) -> Iterator[Edits]:
    """Compute a new tensor instead of writing into the old one."""
    context = fix.context
    record = only(
        one
        for one in errors_of(context, "in-place")
        if one.location("write") is not None and context.site(site_of(one, "write")) == fix.site
    )
    if record is not None:
        yield fix.source.edits(_without_write(fix.source, fix.line, record))


def _without_write(source: SourceFile, line: int, record: AutogradErrorRecord) -> Changes:
    write = record.location("write")
    operation = "" if write is None else write.operation
    if operation == "step":
        return _computed_later(source, line, record.subject)
    if operation and not operation.endswith("_"):
        return _not_in_place(source, line)
    writes = (one for one in source.statements(line) if _may_write(source, one, operation))
    statement = only(writes)
    return {} if statement is None else _of_statement(source, statement, operation)


def _computed_later(source: SourceFile, line: int, loss: str) -> Changes:
    """Move the assignment of a loss behind the step that changes what its backward needs."""
    step = only(
        one
        for one in source.statements(line)
        if isinstance(one, cst.BaseSmallStatement) and call_named(source, one, ["step"]) is not None
    )
    function = None if step is None else source.around(step, cst.FunctionDef)
    stored = only(
        one
        for one in source.inside(source.module if function is None else function.body, cst.Assign)
        if [source.code(target.target) for target in one.targets] == [loss]
    )
    if step is None or stored is None:
        return {}
    return moved_after(source, stored, step, changes_other=True)


def _may_write(source: SourceFile, statement: cst.CSTNode, operation: str) -> bool:
    """Return whether a statement may be the one that writes in place."""
    if isinstance(statement, cst.AugAssign):
        return True
    if operation == "__setitem__":
        return isinstance(statement, cst.Assign)
    calls = source.inside(statement, cst.Call)
    names = (one.func.attr.value for one in calls if isinstance(one.func, cst.Attribute))
    return not operation or operation in names


def _of_statement(source: SourceFile, statement: cst.CSTNode, operation: str) -> Changes:
    if not isinstance(statement, cst.BaseSmallStatement):
        return {}
    if operation == "__setitem__":
        return _into_clone(source, statement)
    if isinstance(statement, cst.AugAssign):
        return _assigned(source, statement)
    return _of_method(source, statement, operation)


def _assigned(source: SourceFile, statement: cst.AugAssign) -> Changes:
    """Replace `x += y` by `x = x + y`."""
    operator, target = _OPERATORS.get(type(statement.operator)), statement.target
    if isinstance(target, cst.Subscript):
        return _into_clone(source, statement)
    # With `x += y`, everyone who holds the tensor sees the change; after `x = x + y` only this name
    # does.
    if operator is None or not isinstance(target, cst.Name) or _is_shared(source, target):
        return {}
    value = cst.BinaryOperation(left=target, operator=operator(), right=_grouped(statement.value))
    return {statement: _assignment(target, value)}


def _grouped(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return a right operand, in parentheses if it is an operation itself."""
    is_operation = isinstance(
        value,
        cst.BinaryOperation
        | cst.BooleanOperation
        | cst.Comparison
        | cst.IfExp
        | cst.Lambda
        | cst.UnaryOperation,
    )
    if not is_operation or value.lpar:
        return value
    return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _assignment(target: cst.Name, value: cst.BaseExpression) -> cst.Assign:
    return cst.Assign(targets=[cst.AssignTarget(target)], value=value)


def _of_method(source: SourceFile, statement: cst.BaseSmallStatement, operation: str) -> Changes:
    """Replace `x.mul_(y)` or `x = x.mul_(y)` by `x = x.mul(y)`; also where only the result is used.

    The parameter of a module that a line writes to has no operation.
    """
    call = statement.value if isinstance(statement, cst.Assign | cst.Expr | cst.Return) else None
    if not isinstance(call, cst.Call):
        return {}
    renamed, owner, written = _renamed(call)
    is_used = not isinstance(statement, cst.Expr)
    # Where the result of `self.weight.mul_(2)` is used, the plain method gives it. As a bare
    # statement it is meant to change the parameter.
    if not operation and len(written) == 1 and isinstance(owner, cst.Attribute):
        return {call: renamed} if is_used else {}
    if operation not in written or not isinstance(owner, cst.Name):
        return {}
    targets = statement.targets if isinstance(statement, cst.Assign) else ()
    is_same = [source.code(one.target) for one in targets] == [owner.value]
    # `z = x.mul_(y)` changes `x`, too. If `x` is read later, its new value is needed.
    if is_used and not is_same:
        return {call: renamed} if _is_last_use(source, owner, statement) else {}
    if _is_shared(source, owner):
        return {}
    return {call: renamed} if is_same else {statement: _assignment(owner, renamed)}


def _is_last_use(source: SourceFile, name: cst.Name, statement: cst.BaseSmallStatement) -> bool:
    """Return whether only the result of a write is used behind it, and nothing else sees it."""
    function = source.around(name, cst.FunctionDef)
    # In a loop, the next pass reads the variable though no line behind the statement does.
    if function is None or _is_in_loop(source, statement) or _is_seen_elsewhere(source, name):
        return False
    # The caller keeps what it has passed, and may rely on the change.
    parameters = [one.name.value for one in source.inside(function.params, cst.Param)]
    return name.value not in parameters and not reads_behind(source, statement, name.value)


def _renamed(
    call: cst.BaseExpression,
) -> tuple[cst.BaseExpression, cst.BaseExpression, tuple[str, ...]]:
    """Return a chain of calls such as `x.mul_(y).add_(z)` without underscores.

    Also what it begins with, and the names of the methods that write in place.
    """
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return call, call, ()
    inner, owner, written = _renamed(call.func.value)
    name = call.func.attr.value
    plain = cst.Name(name.removesuffix("_"))
    function = call.func.with_changes(value=inner, attr=plain)
    return call.with_changes(func=function), owner, (*written, *([name] if name[-1] == "_" else []))


def _not_in_place(source: SourceFile, line: int) -> Changes:
    """Remove `inplace=True` from a call on the line, or from the layer that the line calls.

    The result must be used: otherwise the write is what the line is for.
    """
    calls = source.on_line(line, cst.Call)
    used = [one for one in calls if not isinstance(source.parent(one), cst.Expr)]
    own = [one for one in used if any(map(_is_inplace, one.args))]
    call = only(own or [layer for one in used for layer in _layers(source, one)])
    if call is None:
        return {}
    argument = next(one for one in call.args if _is_inplace(one))
    return {call: call.with_changes(args=without_argument(call.args, argument))}


def _layers(source: SourceFile, call: cst.Call) -> Iterator[cst.Call]:
    """Yield the calls that make the layer of `self.layer(x)` in its class, with `inplace=True`."""
    kind, name = source.around(call, cst.ClassDef), source.code(call.func)
    if kind is None or not name.startswith("self."):
        return
    for statement in source.inside(kind, cst.Assign):
        targets = [source.code(one.target) for one in statement.targets]
        value = statement.value
        if name in targets and isinstance(value, cst.Call) and any(map(_is_inplace, value.args)):
            yield value


def _is_inplace(argument: cst.Arg) -> bool:
    return (
        argument.keyword is not None
        and argument.keyword.value == "inplace"
        and isinstance(argument.value, cst.Name)
        and argument.value.value == "True"
    )


def _into_clone(source: SourceFile, statement: cst.CSTNode) -> Changes:
    """Insert `x = x.clone()` before a statement that writes to elements of `x`."""
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
    elif isinstance(statement, cst.AugAssign):
        target = statement.target
    else:
        return {}
    owner = target.value if isinstance(target, cst.Subscript) else None
    if not isinstance(owner, cst.Name) or _is_shared(source, owner):
        return {}
    clone = cst.Call(func=cst.Attribute(value=owner, attr=cst.Name("clone")))
    assert isinstance(statement, cst.BaseSmallStatement)
    return source.inserted_before(statement, _assignment(owner, clone))


def _is_shared(source: SourceFile, name: cst.Name) -> bool:
    """Return whether a write to a variable may be meant to change what others see.

    True if it is not a variable of a function, if the function does not use it afterwards, or if
    one of its values is a part of a tensor.
    """
    function = source.around(name, cst.FunctionDef)
    statement = source.statement_of(name)
    if function is None or statement is None:
        return True
    # A write whose result the function does not read must be meant for someone else.
    if not reads_behind(source, statement, name.value) and not _is_in_loop(source, statement):
        return True
    return _is_seen_elsewhere(source, name)


def _is_seen_elsewhere(source: SourceFile, name: cst.Name) -> bool:
    """Return whether a variable of a function is global, or a part of another tensor."""
    function = source.around(name, cst.FunctionDef)
    if function is None:
        return True
    outer = [item for one in source.inside(function.body, cst.Global) for item in one.names]
    outer += [item for one in source.inside(function.body, cst.Nonlocal) for item in one.names]
    if any(name.value == item.name.value for item in outer):
        return True
    return any(
        _shares(statement.value)
        for statement in source.inside(function.body, cst.Assign)
        for target in statement.targets
        if isinstance(target.target, cst.Name) and target.target.value == name.value
    )


def _is_in_loop(source: SourceFile, statement: cst.BaseSmallStatement) -> bool:
    return source.around(statement, cst.For, cst.While) is not None


def _shares(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Subscript):
        return True
    function = value.func if isinstance(value, cst.Call) else value
    return isinstance(function, cst.Attribute) and function.attr.value in _VIEWS
