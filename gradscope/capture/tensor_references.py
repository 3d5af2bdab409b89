"""Weak references to tensors of the script, which do not keep torch from swapping the tensors."""

import weakref
from typing import TypeVar

import torch.utils
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

_Referenced = TypeVar("_Referenced", bound=Tensor)
Note = TypeVar("Note")


class WeakTensor(weakref.ref[_Referenced]):
    """A weak reference of gradscope's to a tensor."""

    __slots__ = ()


class WeakLeaf(WeakTensor[Tensor]):
    """The same, which gives None as long as the tensor is no leaf.

    A frozen parameter stops being one where a script writes computed values into it, and is one
    again once it is detached. Torch warns where `.grad` of anything but a leaf is read.
    """

    __slots__ = ()

    def __call__(self) -> Tensor | None:
        """Return the tensor; None without one, and while it is no leaf."""
        tensor = super().__call__()
        return tensor if tensor is None or tensor.is_leaf else None


class TensorNotes(dict[int, tuple[WeakTensor[Tensor], Note]]):
    """Notes on tensors, by their `id`. No tensor gets the note of a dead one at its address.

    Unlike `by_tensor`, it costs no callback where a tensor dies, and keeps its note until it is
    cleared.
    """

    __slots__ = ()

    def keep(self, tensor: Tensor, note: Note) -> None:
        """Keep a note on a tensor, in place of an earlier one."""
        # By `id`, because a tensor's `==` compares elements, so that it cannot be a key.
        self[id(tensor)] = WeakTensor(tensor), note

    def of(self, tensor: object) -> Note | None:
        """Return the note on a tensor; None without one, and for any other object."""
        known = self.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None


class _KeyRef(WeakIdRef):
    """A weak reference of gradscope's to a tensor that is a key."""

    __slots__ = ()


def by_tensor() -> WeakIdKeyDictionary:
    """Return an empty dictionary whose keys are tensors, referenced weakly."""
    return WeakIdKeyDictionary(ref_type=_KeyRef)


class _References:
    """The module `weakref`, without gradscope's own references."""

    def __getattr__(self, name: str) -> object:
        return getattr(weakref, name)

    @staticmethod
    def getweakrefs(thing: object) -> list[object]:
        """Return the weak references to an object, but for gradscope's."""
        found = weakref.getweakrefs(thing)
        return [one for one in found if not isinstance(one, WeakTensor | _KeyRef)]


def allow_swaps() -> None:
    """Hide gradscope's references from `torch.utils.swap_tensors`, once for the process.

    It refuses tensors that are referenced weakly. `Module.to` swaps the parameters of a model that
    was sharded by `fully_shard`, and so does `load_state_dict` on demand. A swapped tensor stays
    the same Python object: gradscope's references remain right. Some outlive a recording, until
    Python collects them, so that this is not undone.
    """
    if not isinstance(vars(torch.utils)["weakref"], _References):
        # `swap_tensors` reads this name of its module at each call.
        vars(torch.utils)["weakref"] = _References()
