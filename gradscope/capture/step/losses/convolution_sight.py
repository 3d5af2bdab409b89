"""Tells whether a convolution over the positions of a sequence sees the next one."""

from collections.abc import Mapping

from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.observed_calls import Args, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import edges

CONVOLUTION = "conv1d"

_MOVING = (
    "CatBackward",
    "ConstantPadNdBackward",
    "CopySlices",
    "FlipBackward",
    "IndexBackward",
    "IndexSelectBackward",
    "PadBackward",
    "RollBackward",
)
"""Operations that may put a position at the index of another one."""
_MOST_NODES = 1_000


def sees_next(args: Args, given: Mapping[str, object], result: object) -> int | None:
    """Return the number of positions if each one sees the next; None otherwise.

    A convolution that is chomped afterwards or gets padded data changes this number, and is left
    alone.
    """
    data, weight = argument(args, given, 0, "input"), argument(args, given, 1, "weight")
    if not (isinstance(data, Tensor) and isinstance(weight, Tensor) and isinstance(result, Tensor)):
        return None
    if data.ndim != 3 or result.ndim != 3 or data.shape[2] != result.shape[2]:
        return None
    stride = _number(argument(args, given, 3, "stride"), 1)
    padding = argument(args, given, 4, "padding")
    spread = _number(argument(args, given, 5, "dilation"), 1)
    reach = (weight.shape[2] - 1) * spread
    left = reach // 2 if padding == "same" else _number(padding, 0)
    # The element of the kernel that lies over the next position.
    tap, rest = divmod(left + 1, spread)
    if stride != 1 or rest or tap >= weight.shape[2] or not has_numbers(weight):
        return None
    # A causal mask may have made it zero.
    return data.shape[2] if bool(weight[:, :, tap].any()) else None


def stays_in_place(tensor: Tensor, number: int) -> bool:
    """Return whether nothing between the result of a node and a tensor moves positions."""
    waiting: list[Node] = [one.node for one in edges(tensor) if one.node is not None]
    met = set(waiting)
    while waiting:
        node = waiting.pop()
        own = created(node)
        if own is None or own <= number:
            continue
        if _moves(node) or len(met) > _MOST_NODES:
            return False
        fresh = [one for one, _ in node.next_functions if one is not None and one not in met]
        met.update(fresh)
        waiting += fresh
    return True


def _moves(node: Node) -> bool:
    # A slice from the start on keeps what it keeps in place.
    is_cut = node.name().startswith("SliceBackward") and getattr(node, "_saved_start", None) != 0
    return is_cut or node.name().startswith(_MOVING)


def _number(value: object, otherwise: int) -> int:
    """Return an argument that is a number, or a tuple of one."""
    if isinstance(value, tuple | list) and len(value) == 1:
        (value,) = value
    return value if isinstance(value, int) else otherwise
