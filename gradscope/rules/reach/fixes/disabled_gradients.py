"""Takes code out of `torch.no_grad()`."""

import libcst as cst

from gradscope.source_edits.source_file import Changes, SourceFile, only

_SWITCHES = ("torch.no_grad", "torch.inference_mode")


def with_gradient(source: SourceFile, line: int) -> Changes:
    """Return the change that removes the only `no_grad` around a line.

    It may be a `with` block or a decorator. Empty if there are several, or none in the function.
    """
    statement = only(source.statements(line))
    if statement is None:
        return {}
    found: list[Changes] = []
    node = statement
    while node is not source.module:
        node = source.parent(node)
        if isinstance(node, cst.With):
            if _iterates(source, node):
                return {}
            found += _without_item(source, node)
        if isinstance(node, cst.FunctionDef):
            found += _without_decorator(source, node)
            break
    return only(found) or {}


def _iterates(source: SourceFile, block: cst.With) -> bool:
    """Return whether a block repeats something, whose history may be left out on purpose."""
    return any(True for _ in source.inside(block.body, cst.For, cst.While, cst.Lambda))


def _without_item(source: SourceFile, block: cst.With) -> list[Changes]:
    """Return the change of a `with` block, for each of its items that disables gradients."""
    items = [one for one in block.items if _disables(source, one.item)]
    if not items:
        return []
    left = [one for one in block.items if one not in items]
    if left:
        left[-1] = left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return [{block: block.with_changes(items=left)}]
    return [_unwrapped(block)]


def _unwrapped(block: cst.With) -> Changes:
    """Return the change of a block to its statements."""
    body = block.body
    if not isinstance(body, cst.IndentedBlock):
        assert isinstance(body, cst.SimpleStatementSuite)
        line = cst.SimpleStatementLine(body=body.body, leading_lines=block.leading_lines)
        return {block: cst.FlattenSentinel([line])}
    first, *others = body.body
    if not isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement):
        return {}
    above = [*block.leading_lines]
    if body.header.comment is not None:
        above.append(cst.EmptyLine(comment=body.header.comment))
    first = first.with_changes(leading_lines=[*above, *first.leading_lines])
    return {block: cst.FlattenSentinel([first, *others])}


def _without_decorator(source: SourceFile, function: cst.FunctionDef) -> list[Changes]:
    return [
        {one: cst.RemovalSentinel.REMOVE}
        for one in function.decorators
        if _disables(source, one.decorator)
    ]


def _disables(source: SourceFile, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a switch without arguments, called or not."""
    if isinstance(node, cst.Call):
        return not node.args and source.qualified(node.func) in _SWITCHES
    return source.qualified(node) in _SWITCHES
