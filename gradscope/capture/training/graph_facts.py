"""What the graph of a loss tells: how it was reduced and divided, its size and its age."""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.reading import whole
from gradscope.capture.source.lines import created
from gradscope.capture.step.teardown import let_go

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
"""Operations that a loss may go through as it is."""

_LONGEST_CHAIN = 32
"""Operations between the root and the reduction."""

NODES = 20_000
"""A walk ends after so many."""

_BRANCHES = frozenset({"AddBackward0", "SubBackward0"})

_MEAN, _SUM = 1, 2
"""As torch numbers reductions."""


@dataclass(slots=True)
class Scaling:
    """What was done to a loss between its reduction and the root of its graph."""

    divided: float = 1.0
    """The product of what it was divided by; the scale of a gradient scaler is left out."""
    is_scaled: bool = False
    is_mean: bool | None = None
    """Whether it is a mean, a sum, or neither as far as can be told."""
    tokens: Tensor | None = None
    """How many targets a mean was taken over, where the loss ignores some; None if unknown."""


def scaling(root: Node, scaled: Container[int], *, readable: bool) -> Scaling:
    """Follow a loss from its root to where it was reduced.

    Args:
        root: Where backward begins.
        scaled: The creation numbers of nodes that gradient scalers have made.
        readable: Whether what nodes have saved can be read without running anyone's code.
    """
    found = Scaling()
    node: Node | None = root
    for _ in range(_LONGEST_CHAIN):
        if node is None:
            break
        name = node.name()
        reduction = _reduction(node, name)
        if reduction is not None:
            found.is_mean = reduction
            found.tokens = _tokens(node, name) if readable else None
            break
        if name in _BRANCHES:
            _follow_terms(node, found, scaled, readable=readable)
            break
        node = _next(node, name, found, scaled, readable=readable)
    return found


def _reduction(node: Node, name: str) -> bool | None:
    if name.startswith("MeanBackward"):
        return True
    if name.startswith("SumBackward"):
        return False
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
    except (AttributeError, RuntimeError):  # freed by a backward before this one
        return None
    return total


def _next(
    node: Node, name: str, found: Scaling, scaled: Container[int], *, readable: bool
) -> Node | None:
    inputs = [following for following, _ in node.next_functions if following is not None]
    if len(inputs) != 1:
        return None
    if name == "MulBackward0" and created(node) in scaled:
        found.is_scaled = True
    elif name in ("MulBackward0", "DivBackward0"):
        factor = _constant(node) if readable else None
        if not factor:
            return None
        found.divided *= factor if name == "DivBackward0" else 1 / factor
    elif name not in _PASSED_ON:
        return None
    return inputs[0]


def _constant(node: Node) -> float | None:
    """Return the number by which a node multiplies or divides; None where that is none."""
    for name in ("_saved_other", "_saved_self"):
        try:
            saved = getattr(node, name, None)
        except RuntimeError:  # freed by a backward before this one
            return None
        if isinstance(saved, Tensor) and saved.is_cpu and not saved.requires_grad:
            one = whole(saved)
            return abs(float(one)) if one is not None and one.numel() == 1 else None
        if isinstance(saved, int | float):
            return abs(float(saved))
    return None


def _follow_terms(node: Node, found: Scaling, scaled: Container[int], *, readable: bool) -> None:
    """Take what holds for every term of a sum."""
    terms = [
        scaling(following, scaled, readable=readable)
        for following, _ in node.next_functions
        if following is not None
    ]
    divisions = {term.divided for term in terms}
    reductions = {term.is_mean for term in terms}
    if len(divisions) == 1:
        found.divided *= divisions.pop()
    if len(reductions) == 1:
        found.is_mean = reductions.pop()
    found.is_scaled = found.is_scaled or any(term.is_scaled for term in terms)


@dataclass(frozen=True, slots=True)
class Extent:
    """How large a graph is, and how far it reaches back."""

    nodes: int
    crossed: frozenset[int]
    """Creation numbers of operations before a moment: those which later ones make use of."""


def extent(root: Node, moment: int | None) -> Extent:
    """Walk a graph, up to its first `NODES` nodes.

    Args:
        root: Where to begin.
        moment: autograd's number then; None if there is nothing before.
    """
    seen, waiting = {root}, [root]
    limit = -1 if moment is None else moment
    crossed = {of for of in (created(root),) if of is not None and of < limit}
    while waiting and len(seen) < NODES:
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
    nodes = list(seen)
    seen.clear()
    waiting.clear()
    let_go(nodes)
    return Extent(count, frozenset(crossed))


def contains(root: Node, numbers: Container[int], least: int) -> bool:
    """Return whether a graph holds one of some operations.

    Args:
        root: Where to begin.
        numbers: Their creation numbers.
        least: The smallest of these: what is older is not looked at.
    """
    seen, waiting = {root}, deque([root])
    while waiting and len(seen) < NODES:
        node = waiting.popleft()
        number = created(node)
        if number is not None and number in numbers:
            return True
        for following, _ in node.next_functions:
            if following is None or following in seen:
                continue
            number = created(following)
            if number is not None and number >= least:
                seen.add(following)
                waiting.append(following)
    return False


def leaves(root: Node) -> list[Tensor]:
    """Return the tensors that get a gradient by a graph, as far as it is walked."""
    seen, waiting = {root}, [root]
    found: list[Tensor] = []
    while waiting and len(seen) < NODES:
        node = waiting.pop()
        leaf = getattr(node, "variable", None) if created(node) is None else None
        if isinstance(leaf, Tensor):
            found.append(leaf)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    nodes = list(seen)
    seen.clear()
    let_go(nodes)
    return found
