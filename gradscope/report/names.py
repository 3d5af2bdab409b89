"""How names and shapes are written. Names of modules and parameters may hold any character."""

from gradscope.report.rows import ParameterRow, TensorRow


def printable(name: str) -> str:
    r"""Return the name with what a terminal would obey or break lines at as escapes: `\x1b`."""
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )


def shape_text(row: ParameterRow | TensorRow) -> str:
    """Return `float32[4, 8]`, `-` where the shape is not known."""
    return "-" if row.shape is None else f"{row.dtype}[{', '.join(map(str, row.shape))}]"


def tensor_text(row: TensorRow) -> str:
    """Return `AddmmBackward0 in blocks.0.mlp`, with the call's number after a module's first."""
    if row.module is None:
        return row.operation
    call = f" (call {row.call})" if row.call else ""
    return f"{row.operation} in {row.module or 'the model'}{call}"
