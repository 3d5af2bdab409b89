"""Tells which views have a history that can be read without a change to the graph.

Reading `grad_fn` of a view that was made before its base was written to makes autograd build a new
node. Its sequence number, and with it the order of the backward, would differ.
"""

from types import (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)

from torch import Tensor

from gradscope.capture.observed_calls import Args, Function
from gradscope.capture.tensor_references import WeakTensor

_C_FUNCTIONS = (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)

_PYTHON_VIEWS = frozenset({"split", "split_with_sizes"})
"""Functions in Python that only return what one function in C makes."""

_versions: dict[int, tuple[WeakTensor[Tensor], int]] = {}
"""By `id` of a view: the version of its base's elements when the view was made."""


def is_old(tensor: Tensor) -> bool:
    """Return whether a tensor may be a view made before its base was written to."""
    if not tensor._is_view():
        return False
    version = tensor._version
    # A view shares the version of its base: 0 means that nothing was ever written.
    if version == 0:
        return False
    known = _versions.get(id(tensor))
    return known is None or known[1] != version or known[0]() is not tensor


def note_views(func: Function, name: str, args: Args, result: object) -> None:
    """Note the views that a call has just made of a tensor that was written to before.

    A layer such as `nn.GRU(batch_first=True)` or `nn.ReLU(inplace=True)` returns such a tensor, and
    nearly every model takes views of it.
    """
    several = type(result) in (tuple, list)
    for tensor in result if several else (result,):  # type: ignore[attr-defined]
        if (
            type(tensor) is Tensor
            and tensor._is_view()
            and tensor._version
            and (isinstance(func, _C_FUNCTIONS) or name in _PYTHON_VIEWS)
            # `contiguous()` may return the tensor itself; `add_` does.
            and not any(one is tensor for one in args)
        ):
            _versions[id(tensor)] = (WeakTensor(tensor), tensor._version)


def forget_views() -> None:
    """Release what is known of every view."""
    _versions.clear()
