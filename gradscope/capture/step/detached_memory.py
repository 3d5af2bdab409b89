"""Knows the tensors in whose memory detached ones lie: a write into one changes the other."""

from collections.abc import Sequence

from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args
from gradscope.capture.tensor_references import TensorNotes, WeakTensor

SHARING = frozenset({"data", "detach"})
"""Calls that return a tensor without history in the memory of the given one."""

_OPERATORS = frozenset({"__iadd__", "__imul__", "__isub__", "__itruediv__", "__setitem__"})


def is_in_place(name: str) -> bool:
    """Return whether a function of this name writes into its first argument."""
    return name in _OPERATORS or (name.endswith("_") and not name.endswith("__"))


class DetachedMemory:
    """The detached tensors of a forward, and views of them."""

    def __init__(self) -> None:
        self._shared = TensorNotes[WeakTensor[Tensor]]()
        """The tensor whose memory a detached one shares."""

    @property
    def is_known(self) -> bool:
        """Whether there is any."""
        return bool(self._shared)

    def note(self, name: str, args: Args, returned: Sequence[Tensor]) -> None:
        """Note a detached tensor, or a view of one, by the tensor whose memory it shares."""
        if not (self._shared or name in SHARING) or not (args and returned):
            return
        given, result = args[0], returned[0]
        known = self._shared.of(given)
        with DisableTorchFunction():
            if name in SHARING and isinstance(given, Tensor):
                self._shared.keep(result, WeakTensor(given))
            elif known is not None and result._is_view():
                self._shared.keep(result, known)

    def sharing(self, tensor: object) -> Tensor | None:
        """Return the tensor in whose memory a detached one lies, None if it is not known."""
        known = self._shared.of(tensor)
        return None if known is None else known()

    def clear(self) -> None:
        """Release every tensor."""
        self._shared.clear()
