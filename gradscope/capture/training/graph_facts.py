"""Reads facts from the graph of a loss: reduction and division, size and age."""

import math
from collections.abc import Container

from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.reading import whole
from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import MOST_NODES, behind, leaf_of, release
from gradscope.frozen import dataclass

_PASSED_ON = frozenset(
    {
        "AliasBackward0",
        "CloneBackward0",
        "NegBackward0",
        "ReshapeAliasBackward0",
        "SelectBackward0",
        "SqueezeBackward0",
        "ToCopyBackward0",
        "UnsafeViewBackward0",
        "UnsqueezeBackward0",
        "ViewBackward0",
    }
)
"""Operations that leave a loss unchanged."""

_LONGEST_CHAIN = 32
"""Maximum number of operations between the root and the reduction."""

_BRANCHES = frozenset({"AddBackward0", "SubBackward0"})

_MEAN, _SUM = 1, 2
"""torch's numbers of the reductions."""


@dataclass(slots=True)
class Scaling:
    """Operations on a loss between its reduction and the root of its graph."""

    divided: float = 1.0
    """Product of its divisors, without the scale of a gradient scaler."""
    multiplied: float = 1.0
    """Product of the constants above 1 among its factors."""
    is_scaled: bool = False
    is_mean: bool | None = None
    """Whether it is a mean or a sum; None if unknown. A sum that is divided by the number of its
    elements, or of its rows, is a mean."""
    tokens: Tensor | None = None
    """Number of targets in a mean, if the loss ignores some; None if unknown."""


def scaling(root: Node, scaled: Container[int], *, readable: bool) -> Scaling:
    """Follow a loss from its root to its reduction.

    Args:
        root: Node where backward starts.
        scaled: Sequence numbers of nodes that gradient scalers made.
        readable: Whether saved tensors can be read without running anyone's code.
    """
    found = Scaling()
    divisors: list[float] = []
    node: Node | None = root
    for _ in range(_LONGEST_CHAIN):
        if node is None:
            break
        name = node.name()
        reduction = _reduction(node, name)
        if reduction is not None:
            found.is_mean = reduction or _takes_mean(node, divisors, found)
            found.tokens = _tokens(node, name) if readable else None
            break
        # A sum of terms has one edge per term. Division and reduction hold for the sum if they
        # hold for each term.
        if name in _BRANCHES:
            _follow_terms(node, found, scaled, readable=readable)
            break
        before, node = found.divided, _next(node, name, found, scaled, readable=readable)
        if name == "DivBackward0":
            divisors.append(found.divided / before)
    return found


def _takes_mean(node: Node, divisors: list[float], found: Scaling) -> bool:
    """Return whether a sum is divided by its size, which is then no divisor of the loss."""
    # `kl_div(reduction="batchmean")` is a sum that is divided by the number of rows.
    sizes = getattr(node, "_saved_self_sym_sizes", ())
    counts = {int(math.prod(sizes)), int(sizes[0])} if sizes else set()
    # Rounded, because a divisor may have been computed as one over a factor.
    size = next((one for one in divisors if one > 1 and round(one, 6) in counts), None)
    if size is None:
        return False
    found.divided /= size
    return True


def _reduction(node: Node, name: str) -> bool | None:
    if name.startswith("MeanBackward"):
        return True
    if name.startswith("SumBackward"):
        return False
    # Losses such as `MseLossBackward0` save their reduction as the number of an enum.
    saved = getattr(node, "_saved_reduction", None)
    return {_MEAN: True, _SUM: False}.get(saved) if isinstance(saved, int) else None


def _tokens(node: Node, name: str) -> Tensor | None:
    """Return the number of targets that a negative log-likelihood does not ignore."""
    if not name.startswith("NllLoss"):
        return None
    try:
        if node._saved_weight is not None:  # type: ignore[attr-defined]
            return None  # weighted by class, they are no count
        total: Tensor = node._saved_total_weight  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # freed by an earlier backward
        return None
    return total


def _next(
    node: Node, name: str, found: Scaling, scaled: Container[int], *, readable: bool
) -> Node | None:
    inputs = [following for following, _ in node.next_functions if following is not None]
    # Constants require no grad and have no edge: a single edge means a product with a constant.
    if len(inputs) != 1:
        return None
    if name == "MulBackward0" and created(node) in scaled:
        found.is_scaled = True
    elif name in ("MulBackward0", "DivBackward0"):
        # Reading a tensor saved under hooks runs them.
        factor = _constant(node) if readable else None
        if not factor:
            return None
        factor = factor if name == "DivBackward0" else 1 / factor
        found.divided *= factor
        # A loss times infinity is divided by 0.
        found.multiplied *= max(1 / factor, 1.0) if factor else 1.0
    elif name not in _PASSED_ON:
        return None
    return inputs[0]


def _constant(node: Node) -> float | None:
    """Return the number by which a node multiplies or divides; None if there is none."""
    # A product saves a factor only if the other one needs a gradient.
    for name in ("_saved_other", "_saved_self"):
        try:
            saved = getattr(node, name, None)
        except RuntimeError:  # freed by an earlier backward
            return None
        # On other devices, reading it would wait for them.
        if isinstance(saved, Tensor) and saved.is_cpu and not saved.requires_grad:
            one = whole(saved)
            return abs(float(one)) if one is not None and one.numel() == 1 else None
        if isinstance(saved, int | float):
            return abs(float(saved))
    return None


def _follow_terms(node: Node, found: Scaling, scaled: Container[int], *, readable: bool) -> None:
    """Add what holds for every term of a sum."""
    terms = [
        scaling(following, scaled, readable=readable)
        for following, _ in node.next_functions
        if following is not None
    ]
    divisions = {term.divided for term in terms}
    reductions = {term.is_mean for term in terms}
    if len(divisions) == 1:
        found.divided *= divisions.pop()
        found.multiplied *= min(term.multiplied for term in terms)
    if len(reductions) == 1:
        found.is_mean = reductions.pop()
    found.is_scaled = found.is_scaled or any(term.is_scaled for term in terms)


@dataclass(frozen=True, slots=True)
class Extent:
    """Size of a graph, and how far back it reaches."""

    nodes: int
    crossed: frozenset[int]
    """Sequence numbers of the operations before a moment that later ones use."""


def extent(root: Node, moment: int | None) -> Extent:
    """Walk a graph, up to its first `MOST_NODES` nodes.

    Args:
        root: Node to start from.
        moment: Sequence number at the moment; None if there is nothing before.
    """
    seen, waiting = {root}, [root]
    limit = -1 if moment is None else moment
    crossed = {of for of in (created(root),) if of is not None and of < limit}
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        number = created(node)
        is_later = number is not None and number >= limit
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
                if is_later and (of := created(following)) is not None and of < limit:
                    crossed.add(of)
    count = len(seen)
    # The set holds Python objects of the nodes. Dropping it at once could free a deep graph
    # recursively.
    nodes = list(seen)
    seen.clear()
    waiting.clear()
    release(nodes)
    return Extent(count, frozenset(crossed))


def contains(root: Node, numbers: Container[int], least: int) -> bool:
    """Return whether a graph contains one of some operations.

    Args:
        root: Node to start from.
        numbers: Sequence numbers of the operations.
        least: The smallest of these. Nodes behind older ones are not visited.
    """
    return any(
        number in numbers
        for node in behind([root], until=lambda node: (created(node) or least) < least)
        if (number := created(node)) is not None
    )


def leaves(root: Node) -> list[Tensor]:
    """Return the tensors that get a gradient from a graph, as far as it is walked."""
    return [leaf for node in behind([root]) if (leaf := leaf_of(node)) is not None]
