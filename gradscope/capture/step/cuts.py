"""Finds where gradients are cut off: calls whose inputs are in the graph and outputs are not.

Such are `detach`, `.data`, `item`, everything under `no_grad` or in a reentrant checkpoint, and
functions without a derivative: `argmax`, comparisons, casts to integers. The results of such calls
are followed, to know which cuts lead to the loss.
"""

from dataclasses import dataclass, field
from types import FrameType

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Function, Kwargs
from gradscope.capture.source.lines import Caller, Forward, Line
from gradscope.capture.step.behind_cuts import (
    ARRAYS,
    SHARING,
    DetachedMemory,
    NumpyNumbers,
    PlainNumbers,
    frame_of_call,
    is_in_place,
)
from gradscope.capture.step.derivatives import asks_for_second_order
from gradscope.capture.step.graph import Edge, edges, tensors
from gradscope.capture.tensor_references import TensorNotes
from gradscope.recording.cut_record import CutKind

_READS = frozenset(
    {"__array__", "__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist"}
)
"""Calls that move values out of torch, where they cannot be followed."""

_FROM_ARRAYS = frozenset({"as_tensor", "from_numpy", "tensor"})
"""Functions that make a tensor of an array."""

_SEPARATE_TENSORS = frozenset({"_base", "_grad", "grad"})
"""Attributes that are separate tensors."""

_SHAPES = frozenset(
    {
        "empty_like",
        "full_like",
        "new_empty",
        "new_empty_strided",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "rand_like",
        "randint_like",
        "randn_like",
        "zeros_like",
    }
)
"""Calls that use only shape, type and device of a tensor: no gradient could flow."""

_WITHOUT_VALUES = _SEPARATE_TENSORS | _SHAPES

_COPIES = frozenset({"new_tensor", "tensor"})
"""Calls whose result has no history, also where it requires grad itself."""

DEEP_COPY = "deepcopy"
"""Name of the cut by `copy.deepcopy`."""

ASSIGNED_DATA = "data assignment"
"""Name of the cut by an assignment to `.data`."""

DETACHED_WRITE = "write into a detached tensor"
"""Name of the cut by a write into a tensor that shares memory with one of the graph."""

_WRITES = frozenset({"__set__", "copy_"})

_DETACHES = frozenset(
    {
        "autograd.grad",
        "data",
        "detach",
        "detach_",
        ASSIGNED_DATA,
        DEEP_COPY,
        DETACHED_WRITE,
        *_COPIES,
    }
)

_WITH_INDICES = frozenset(
    {"cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk"}
)
"""Calls that return values, which have gradients, and indices, which have none."""

DERIVATIVE = "autograd.grad"
"""Name of the cut by a derivative without `create_graph`."""

_SUMS = frozenset(
    {"__iadd__", "__isub__", "__radd__", "__rsub__", "__sub__", "add", "add_", "sub", "sub_"}
)

_LAYERS = frozenset({"baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "linear", "matmul", "mm"})

_NO_CUTS = frozenset[int]()

MOST_SOURCES = 64
"""Maximum number of intermediate tensors recorded per cut; all leaves are recorded."""


@dataclass(slots=True)
class Cut:
    """A line that cuts tensors off from the graph."""

    operation: str
    kind: CutKind
    line: Line | None
    call: int | None
    """Innermost module call in which it happened."""
    whole_call: bool
    """Whether a whole module was called without gradients; the line is that of its call."""
    sources: dict[int, Edge] = field(default_factory=dict)
    """The tensors that were cut off, by `id` of the node or leaf."""
    forwards: dict[int, Forward] = field(default_factory=dict)
    """By the same `id`: the model's call in which, or after which, the tensor was made."""
    taken_out: bool = False
    """Whether values behind the cut were moved out of torch."""
    comes_back: bool = False
    """Whether the function that moved them out as an array also makes tensors."""
    count: int = 0
    met: int = 0
    """Number of the tracker's meetings up to its last one."""
    joins: list[tuple[int, int]] = field(default_factory=list)
    """First sequence number, and the one after the last, of each operation with an input from
    behind the cut."""
    layer_joins: list[tuple[int, int]] = field(default_factory=list)
    """Joins whose input from behind the cut has passed a layer without a gradient."""
    read_into: list[tuple[int, int]] = field(default_factory=list)
    """Sequence numbers of each sum with a plain number that was read behind the cut."""

    second_order: bool | None = None
    """Whether a switch of the script's own asks for the gradient that a derivative cuts off."""

    def add(self, edge: Edge, forward: Forward | None) -> None:
        """Record a tensor that was cut off, and release those of calls no longer held."""
        if forward is not None:
            # Long trainings hold the tensors of the last calls only, and so does a cut.
            for key, other in list(self.forwards.items()):
                if other.model == forward.model and other.number < forward.oldest:
                    del self.forwards[key], self.sources[key]
        if edge.leaf is not None or len(self.sources) < MOST_SOURCES:
            key = id(edge.leaf if edge.node is None else edge.node)
            self.sources[key] = edge
            if forward is not None:
                self.forwards[key] = forward


class CutTracker:
    """Records cuts, and follows the tensors behind them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.cuts: list[Cut] = []
        """Cuts in the order in which they were first met."""
        self.meetings = 0
        """How often any cut was met."""
        self.checkpoint: Line | None = None
        """Line of a running reentrant checkpoint whose inputs need no gradient."""
        self._positions: dict[tuple[str, int, int], int] = {}
        self._behind = TensorNotes[frozenset[int]]()
        """The cuts before a tensor, and the complement of those before a layer."""
        self._shared = DetachedMemory()
        self._plain = PlainNumbers()
        self._numpy = NumpyNumbers()

    def see(self, func: Function, args: Args, kwargs: Kwargs, result: object) -> None:
        """Observe a call that made no node."""
        returned = _returned(result)
        name = _name_of(func)
        if name == "__setitem__":
            self._see_assigned(args)
            return
        is_known = name in _WITHOUT_VALUES or self._has_written(name, func, args)
        if is_known or not (returned or name in _READS):
            return
        given = (args, tuple(kwargs.values())) if kwargs else args
        origins = self._origins(given) | self._plain.within(name, args)
        # Reading `requires_grad` is a torch function as well, which would be observed again.
        with DisableTorchFunction():
            is_copy = name in _COPIES
            without = [tensor for tensor in returned if is_copy or not tensor.requires_grad]
        # Written in place, or returned unchanged as by broadcast_tensors: nothing was cut off.
        sources = edges(given) if len(without) == len(returned) else []
        returned = without
        if name in _READS:
            self._note_way_out(name, origins)
        if sources and (returned or name in _READS):
            origins |= {self._note(name, _kind(name), sources)}
        self._shared.note(name, args, returned)
        self._numpy.read(name, origins)
        self._numpy.make(name, args, returned)
        if origins:
            if name in _LAYERS:
                origins |= {~origin for origin in origins if origin >= 0}
            for tensor in returned:
                self._follow(tensor, origins)
            self._plain.note(result, origins)

    def _has_written(self, name: str, func: Function, args: Args) -> bool:
        """Observe a tensor that gets the elements of a computed one, and none of its history."""
        if name not in _WRITES:
            return False
        attribute = getattr(getattr(func, "__self__", None), "__name__", None)
        if len(args) < 2 or attribute not in (None, "data"):
            return False
        target, value = args[:2]
        sources = [edge for edge in edges(value) if edge.node is not None]
        if not isinstance(target, Tensor) or not isinstance(value, Tensor):
            return False
        if not sources:
            return attribute is not None and self._has_assigned(target, value)
        name = "copy_" if attribute is None else ASSIGNED_DATA
        self._follow(target, frozenset({self._note(name, _kind(name), sources)}))
        return True

    def _see_assigned(self, args: tuple[object, ...]) -> None:
        """Observe `target[position] = value` that made no node, of a computed value."""
        target, origins = args[0], self._origins(args[1:])
        sources = [edge for edge in edges(args[-1]) if edge.node is not None]
        if sources:
            origins |= {self._note("copy_", _kind("copy_"), sources)}
        if origins and isinstance(target, Tensor):
            self._follow(target, origins)

    def _has_assigned(self, target: Tensor, value: Tensor) -> bool:
        """Observe `target.data = value.data` of a computed value, whose reading cut it off."""
        origins = self._origins(value)
        cuts = [self.cuts[origin] for origin in origins if origin >= 0]
        is_computed = any(edge.node is not None for cut in cuts for edge in cut.sources.values())
        if not is_computed or any(cut.operation not in SHARING for cut in cuts):
            return False
        for cut in cuts:
            cut.operation = ASSIGNED_DATA
        self._follow(target, origins)
        return True

    def see_nodes(
        self,
        func: Function,
        name: str,
        args: Args,
        kwargs: Kwargs,
        result: object,
        numbers: tuple[int, int],
    ) -> None:
        """Observe a call that made nodes, from the first number to before the second."""
        if isinstance(result, tuple):
            if name in _WITH_INDICES:
                self._see_indices(name, args, result)
        elif isinstance(result, Tensor) and not result.requires_grad:
            self.see(func, args, kwargs, result)  # for example, argsort calls sort
        if self._shared.is_known and args and is_in_place(name):  # `relu_(input=x)` has none
            self._see_detached_write(args)
        if self._behind:
            for origin in self._origins((args, tuple(kwargs.values())) if kwargs else args):
                cut = self.cuts[max(origin, ~origin)]
                (cut.joins if origin >= 0 else cut.layer_joins).append(numbers)
        if name in _SUMS:
            self._note_sum(args, numbers)

    def _note_way_out(self, name: str, origins: frozenset[int]) -> None:
        """Note cuts behind which values are moved out of torch, and whether they come back.

        Arrays of NumPy cannot be followed. A function that takes one out, makes tensors of arrays
        and runs no backward computes with it; a training loop mostly shows what it takes out.
        """
        names = frozenset[str]()
        if origins and name in ARRAYS and (frame := frame_of_call()) is not None:
            names = frozenset(frame.f_code.co_names)
        comes_back = bool(names & _FROM_ARRAYS) and "backward" not in names
        for origin in origins:
            cut = self.cuts[max(origin, ~origin)]
            cut.taken_out, cut.comes_back = True, cut.comes_back or comes_back

    def _see_detached_write(self, args: Args) -> None:
        """Observe a write that puts history on a detached tensor, and numbers into another."""
        sharing, sources = self._shared.sharing(args[0]), edges(args[1:])
        if sharing is not None and sources:
            self._follow(sharing, frozenset({self._note(DETACHED_WRITE, "detach", sources)}))

    def _note_sum(self, args: Args, numbers: tuple[int, int]) -> None:
        """Record that a sum uses numbers that were read, or computed from arrays that were."""
        for origin in self._numpy.before(args) | self._plain.before(args):
            self.cuts[max(origin, ~origin)].read_into.append(numbers)

    def _see_indices(self, name: str, args: Args, result: object) -> None:
        """Observe a call that returned several tensors, of which some may be indices."""
        with DisableTorchFunction():
            indices = [tensor for tensor in _returned(result) if not tensor.requires_grad]
        if indices:
            origin = self._note(name, "non-differentiable", edges(args))
            for tensor in indices:
                self._follow(tensor, frozenset({origin}))

    def see_wrapped(self, tensor: Tensor, parameter: Tensor, frame: FrameType) -> None:
        """Observe a tensor that a frame wrapped as a parameter, which is a leaf of its own."""
        sources, origins = edges(tensor), self._origins(tensor)
        if sources:
            origins |= {self._note("Parameter", "detach", sources, frame)}
        if origins:
            self._follow(parameter, origins)

    def before(self, tensor: Tensor) -> list[int]:
        """Return the indices of the cuts behind which a tensor was made."""
        return sorted(origin for origin in self._origins(tensor) if origin >= 0)

    def close(self) -> None:
        """Release every tensor."""
        self.cuts.clear()
        self._behind.clear()
        self._shared.clear()
        self._plain.clear()
        self._numpy.clear()

    def _note(
        self, name: str, kind: CutKind, sources: list[Edge], frame: FrameType | None = None
    ) -> int:
        calls = self._caller.open_calls
        # Under `no_grad` every operation of a module is a cut: its call is the one line to show.
        whole = self._caller.first_call_without_grad() if kind == "no-grad" else None
        if whole is None:
            line = self._caller.line(frame or frame_of_call())
        else:  # the checkpoint is the cause of everything inside it
            name, line, calls = "forward", calls[whole].line, calls[:whole]
        if kind == "no-grad" and self.checkpoint is not None:
            name, line = "checkpoint", self.checkpoint
        key = (name, id(line.code), line.number) if line else (name, 0, 0)
        position = self._positions.setdefault(key, len(self.cuts))
        if position == len(self.cuts):
            call = calls[-1].number if calls else None
            self.cuts.append(Cut(name, kind, line, call, whole is not None))
            if name == DERIVATIVE:
                self.cuts[position].second_order = asks_for_second_order(frame_of_call())
        cut = self.cuts[position]
        cut.count += 1
        self.meetings += 1
        cut.met = self.meetings
        for edge in sources:
            cut.add(edge, self._caller.forward)
        return position

    def _origins(self, given: object) -> frozenset[int]:
        if not self._behind:
            return _NO_CUTS
        origins = _NO_CUTS
        for tensor in tensors(given):
            origins |= self._behind.of(tensor) or _NO_CUTS
        return origins

    def _follow(self, tensor: Tensor, origins: frozenset[int]) -> None:
        self._behind.keep(tensor, origins | (self._behind.of(tensor) or _NO_CUTS))


def _name_of(func: Function) -> str:
    """Return the name of a function, or of the attribute that it reads."""
    if func is torch.autograd.grad:
        return DERIVATIVE
    name: str = getattr(func, "__name__", "")
    if name == "__get__":
        name = str(getattr(getattr(func, "__self__", None), "__name__", name))
        if name == "data" and _is_in_deepcopy():
            return DEEP_COPY
    # A parameter copies its `.data`; a hooked or computed tensor is copied by one call.
    return DEEP_COPY if name == "__deepcopy__" else name


def _is_in_deepcopy() -> bool:
    frame = frame_of_call()
    return frame is not None and frame.f_code.co_name == "__deepcopy__"


def _returned(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, torch.Size) or not isinstance(result, tuple | list):
        return []
    return [item for item in result if isinstance(item, Tensor)]


def _kind(name: str) -> CutKind:
    if name in _READS:
        return "read"
    if name in _DETACHES:
        return "detach"
    if not torch.is_grad_enabled():
        return "no-grad"
    return "non-differentiable"
