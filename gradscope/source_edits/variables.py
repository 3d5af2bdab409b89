"""Where code reads a variable."""

from collections.abc import Iterator

import libcst as cst

from gradscope.source_edits.source_file import SourceFile


def reads(source: SourceFile, outer: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression]:
    """Yield where code reads or assigns a variable, or an attribute such as `self.state`."""
    for node in (*source.inside(outer, cst.Name), *source.inside(outer, cst.Attribute)):
        parent = source.parent(node)
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is node
        is_part = isinstance(parent, cst.Attribute) and parent.attr is node
        if source.code(node) == name and not (is_keyword or is_part):
            yield node


def reads_behind(
    source: SourceFile, statement: cst.BaseSmallStatement, name: str
) -> list[cst.BaseExpression]:
    """Return where the function of a statement names a variable behind it."""
    function = source.around(statement, cst.FunctionDef)
    outer = source.module if function is None else function.body
    end = source.end(statement)
    return [node for node in reads(source, outer, name) if source.start(node) >= end]
