"""From a line outwards: the statements that call the function of which it is a part."""

from collections.abc import Iterator

import libcst as cst

from gradscope.source_edits.source_file import SourceFile, only


def statements_above(source: SourceFile, line: int) -> Iterator[cst.SimpleStatementLine]:
    """Yield the statement of a line, then the only one that calls its function, and so on."""
    found = [one for one in source.statements(line) if isinstance(one, cst.BaseSmallStatement)]
    statement = only(found)
    seen = set[int]()
    while statement is not None and id(statement) not in seen:
        seen.add(id(statement))
        own = source.parent(statement)
        if isinstance(own, cst.SimpleStatementLine) and len(own.body) == 1:
            yield own
        statement = _caller(source, statement)


def _caller(source: SourceFile, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """Return the only statement that calls the function around a node."""
    function = source.around(node, cst.FunctionDef, cst.Lambda)
    if not isinstance(function, cst.FunctionDef):
        return None
    kind = source.around(function, cst.ClassDef, cst.FunctionDef)
    name = function.name.value
    if name == "__init__" and isinstance(kind, cst.ClassDef):
        name = kind.name.value
    call = only(one for one in source.all(cst.Call) if _is_called(one.func, name))
    return None if call is None else source.statement_of(call)


def _is_called(function: cst.BaseExpression, name: str) -> bool:
    last = function.attr if isinstance(function, cst.Attribute) else function
    return isinstance(last, cst.Name) and last.value == name
