"""Detects gradients that are collected without a copy, and that the next backward writes to."""

import gc
import sys
from collections.abc import Callable, Iterable

from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line

_MOST_SEARCHES = 8
"""Maximum number of searches per observer: each takes a pass over all objects."""
_OWN_REFERENCES = 3
"""References to a gradient that nobody else holds, while it is counted."""


class KeptGradientObserver(Observer):
    """Compares the collections of gradients before and after a backward.

    Each collection is a list or a dict of the script's. If one that was filled before a backward
    holds the same tensor as one that was filled after it, both hold what the last backward wrote.
    """

    names = frozenset(
        {
            *("add", "cat", "clone", "div", "dot", "flatten", "inner", "mean", "mul", "norm"),
            *("ravel", "reshape", "stack", "sub", "sum", "view", "view_as", "__rmul__"),
        }
    )

    def __init__(self) -> None:
        self.found: dict[Line, int] = {}
        """By line that uses a collection: number of collections with the same gradient."""
        self._gradient = 0
        """`id` of the gradient that is compared; 0 before the first backward."""
        self._first: set[int] | None = None
        """Collections that held it before the first backward, by `id`."""
        self._earlier: set[int] = set()
        """Collections filled since, before the last backward."""
        self._is_written = False
        self._searches = 0

    def before_backward(self, gradient: Tensor | None) -> None:
        """Search the collections that hold a parameter's gradient."""
        self._is_written = False
        if gradient is None or self._searches == _MOST_SEARCHES:
            self._gradient = 0
            self._first = self._first or set()
            return
        # Counting references is immediate; searching for them visits every object of the process.
        is_held = sys.getrefcount(gradient) > _OWN_REFERENCES
        holders = self._collections(gradient) if is_held else set()
        if self._first is None:
            self._first = holders
        elif self._gradient not in (0, id(gradient)):
            self._earlier = set()
        self._gradient = id(gradient)
        self._earlier = (self._earlier & holders) | (holders - self._first)

    def after_backward(self, gradient: Tensor | None) -> None:
        """Record whether the backward has written to the same tensor."""
        self._is_written = bool(self._earlier) and id(gradient) == self._gradient

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call uses the gradient that is compared."""
        if not self._is_written or not args or self._searches == _MOST_SEARCHES:
            return False
        first = args[0]
        given = first if isinstance(first, list | tuple) else args[:2]
        return any(id(one) == self._gradient for one in given)

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a call that uses the gradient while an earlier and a later collection hold it."""
        first = args[0]
        given = first if isinstance(first, list | tuple) else args[:2]
        gradient = next(one for one in given if id(one) == self._gradient)
        holders = self._collections(gradient)
        # The list that the call itself was given may be a temporary one.
        holders.discard(id(first))
        if line is not None and holders & self._earlier and holders - self._earlier:
            later = holders - (self._first or set())
            self.found[line] = max(len(later), self.found.get(line, 0))

    def _collections(self, gradient: object) -> set[int]:
        """Return the lists, and dicts of tensors, of which a tensor is an item, by `id`."""
        self._searches += 1
        return {id(one) for one in gc.get_referrers(gradient) if _is_collection(one)}

    def close(self) -> None:
        """Forget everything."""
        self.found.clear()
        self._earlier, self._is_written, self._gradient = set(), False, 0


def _is_collection(holder: object) -> bool:
    if type(holder) is dict:  # and not the variables of a module or an object
        return len(holder) > 1 and all(
            one is None or isinstance(one, Tensor) for one in holder.values()
        )
    return type(holder) is list


def first_gradient(parameters: Iterable[Callable[[], Tensor | None]]) -> Tensor | None:
    """Return the gradient of the first parameter that has one."""
    for reference in parameters:
        parameter = reference()
        if parameter is not None and parameter.grad is not None:
            return parameter.grad
    return None
