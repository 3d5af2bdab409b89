"""How names and shapes are written. Names of modules and parameters may hold any character."""

import re

from gradscope.analysis.rows import ParameterRow, TensorRow

_BACKWARD = re.compile(r"Backward\d*$")


def shape_text(row: ParameterRow | TensorRow) -> str:
    """Return `float32[4, 8]`, `-` where the shape is not known."""
    return "-" if row.shape is None else f"{row.dtype}[{', '.join(map(str, row.shape))}]"


def operation_text(operation: str) -> str:
    """Return autograd's name of an operation as people know it: `Mean` for `MeanBackward1`."""
    return _BACKWARD.sub("", operation) or operation


def made_by(row: TensorRow) -> str:
    """Return the operation that made a tensor; what a tensor is that none made."""
    # Both an input that requires grad and a parameter of another model are such leaves.
    return "leaf outside the model" if row.kind == "leaf" else operation_text(row.operation)


def tensor_text(row: TensorRow) -> str:
    """Return `Addmm in blocks.0.mlp`, with the call's number after a module's first."""
    if row.module is None:
        return made_by(row)
    call = f" (call {row.call})" if row.call else ""
    return f"{made_by(row)} in {row.module or 'the model'}{call}"
