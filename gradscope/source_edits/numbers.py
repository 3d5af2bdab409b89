"""Numbers that the code writes as literals."""

import libcst as cst

from gradscope.source_edits.source_file import SourceFile
from gradscope.source_edits.variables import reads, value_of

Literal = cst.Float | cst.Integer


def literal_of(source: SourceFile, node: cst.BaseExpression) -> Literal | None:
    """Return the literal of an expression, or of the variable that nothing else reads."""
    if isinstance(node, cst.Float | cst.Integer):
        return node
    value = value_of(source, node)
    if not isinstance(value, cst.Float | cst.Integer) or not isinstance(node, cst.Name):
        return None
    is_read_once = len(list(reads(source, source.module, node.value))) == 2  # and assigned
    return value if is_read_once else None


def number_code(value: float) -> str:
    """Return a number of one digit or two as people write it."""
    rounded = float(f"{value:.1g}") if value < 1 else float(f"{value:.2g}")
    return repr(rounded)
