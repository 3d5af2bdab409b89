"""Finds contrastive losses by hand that count the similarity of each example to itself.

They are no cross-entropy of the similarities, but a sum of exponentials over each row, or logits
that are put together.
"""

from typing import Literal, NamedTuple

from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.step.graph import tensors
from gradscope.capture.step.losses.pair_labels import OwnSimilarities
from gradscope.capture.tensor_references import TensorNotes

_PRODUCTS = frozenset({"__matmul__", "matmul", "mm", "einsum", "cosine_similarity"})
_QUOTIENTS = frozenset({"__truediv__", "div"})
_SCALES = _QUOTIENTS | {"__mul__", "__rmul__", "mul"}
_DIFFERENCES = frozenset({"__sub__", "sub"})
_CHOICES = frozenset({"__getitem__", "gather"})
_DIAGONALS = frozenset({"diag", "diagonal"})
_LEAST_ROWS, _MOST_ROWS = 4, 4_096
_MOST, _MOST_NOTES = 16, 256
_SAME = 1e-5
"""Relative difference of two similarities that are the same one."""

_Kind = Literal["similarities", "sums", "logarithms", "shares", "block", "logits"]
"""`similarities` of all rows, or their exponentials; `sums` of exponentials over a row, or
`logarithms` of these; `shares` of a row's sum, or their logarithms; a `block` of these; `logits`
beside which the similarities stand."""


class _Rows(NamedTuple):
    kind: _Kind
    rows: int
    largest: int
    """Number of rows whose own similarity is the largest."""


class RepeatedPositives(NamedTuple):
    """Logits whose first column holds a similarity that stands in another column, too."""

    line: Line
    rows: int


class OwnRowObserver(Observer):
    """Follows the similarities of a tensor with itself to the sum over each row, and to a loss."""

    names = frozenset(
        {
            *_PRODUCTS,
            *_SCALES,
            *_DIFFERENCES,
            *_CHOICES,
            *_DIAGONALS,
            "cat",
            "cross_entropy",
            "exp",
            "log",
            "log_softmax",
            "logsumexp",
            "sum",
        }
    )

    def __init__(self) -> None:
        self.own: list[OwnSimilarities] = []
        self.repeated: list[RepeatedPositives] = []
        self._notes = TensorNotes[_Rows]()

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call compares a tensor with itself, or uses such similarities."""
        if name in _PRODUCTS:
            is_start = _compares_with_itself(args[1:] if name == "einsum" else args)
            return is_start and len(self._notes) < _MOST_NOTES
        if name == "cross_entropy":
            return len(self.own) + len(self.repeated) < _MOST
        if not self._notes:  # of most calls
            return False
        given = args[0] if name == "cat" and args else args
        return isinstance(given, list | tuple) and any(
            self._notes.of(one) is not None for one in given
        )

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        if line is None or not isinstance(result, Tensor) or not result.requires_grad:
            return
        if name in _PRODUCTS:
            if result.ndim == 2 and result.shape[0] == result.shape[1]:
                self._keep(result, "similarities")
        elif name == "cross_entropy":
            self._see_loss(args, kwargs, line)
        else:
            operands = list(tensors(args))
            known = [(one, note) for one in operands if (note := self._notes.of(one)) is not None]
            made = _made(name, args, kwargs, known)
            if made == "found":
                note = known[-1][1]
                self.own.append(OwnSimilarities(line, note.rows, note.largest))
            elif made == "similarities":
                self._keep(result, made)
            elif made is not None:
                self._notes.keep(result, known[-1][1]._replace(kind=made))

    def close(self) -> None:
        """Forget everything."""
        self.own, self.repeated = [], []
        self._notes.clear()

    def _keep(self, result: Tensor, kind: _Kind) -> None:
        """Note similarities with the number of rows that their own one wins."""
        rows = result.shape[0]
        if not _LEAST_ROWS <= rows <= _MOST_ROWS or not has_numbers(result):
            return
        values = result.detach().float()
        largest = values.amax(1)
        won = int((values.diagonal() >= largest - 1e-4 * largest.abs()).sum())
        self._notes.keep(result, _Rows(kind, rows, won))

    def _see_loss(self, args: Args, kwargs: Kwargs, line: Line) -> None:
        given = kwargs or {}
        logits = argument(args, given, 0, "input")
        target = argument(args, given, 1, "target")
        if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
            return
        if logits.ndim != 2 or target.ndim != 1 or target.is_floating_point():
            return
        rows, columns = logits.shape
        is_read = _LEAST_ROWS <= rows <= _MOST_ROWS and rows < columns <= _MOST_ROWS
        if not is_read or not (has_numbers(logits) and has_numbers(target)) or bool(target.any()):
            return
        if (note := self._notes.of(logits)) is not None and note.kind == "logits":
            self.own.append(OwnSimilarities(line, note.rows, note.largest))
            return
        values = logits.detach().float()
        first = values[:, :1]
        near = (values[:, 1:] - first).abs() <= _SAME * first.abs()
        if bool((near.sum(1) == 1).all()):
            self.repeated.append(RepeatedPositives(line, rows))


def _made(
    name: str, args: Args, kwargs: Kwargs, known: list[tuple[Tensor, _Rows]]
) -> _Kind | Literal["found"] | None:
    """Return what a call makes of similarities; `found` if a loss has compared them."""
    kinds = [note.kind for _, note in known]
    kind = kinds[-1]
    if name == "cat":
        parts = args[0] if isinstance(args[0], list | tuple) else ()
        is_last = kinds == ["similarities"] and len(parts) > 1 and parts[0] is not known[0][0]
        return "logits" if is_last else None
    if kind == "similarities":
        return _of_similarities(name, args, kwargs, known[-1][0])
    if name == "log":
        changed: dict[str, _Kind] = {"sums": "logarithms", "shares": "shares"}
        return changed.get(kind)
    if kind in ("sums", "logarithms"):
        return _of_sums(name, args, kinds)
    if kind == "shares" and name == "__getitem__":
        index = args[1]
        is_slice = isinstance(index, tuple) and any(isinstance(one, slice) for one in index)
        return "block" if is_slice else "found" if isinstance(index, tuple) else None
    if kind == "shares" and name == "gather":
        return "found"
    if kind == "shares" and name in _SCALES - _QUOTIENTS:
        return "found" if _is_mask_of_others(args, known[-1][0]) else None
    return "found" if kind == "block" and name in _DIAGONALS else None


def _of_similarities(name: str, args: Args, kwargs: Kwargs, similarities: Tensor) -> _Kind | None:
    """Return what a call makes of a whole matrix of similarities."""
    others = [one for one in tensors(args) if one is not similarities]
    if name in _SCALES:
        return "similarities" if all(one.numel() == 1 for one in others) else None
    if name in _DIFFERENCES:
        is_by_row = all(one.shape == (similarities.shape[0], 1) for one in others)
        return "similarities" if is_by_row and args[0] is similarities else None
    if name == "exp":
        return "similarities"
    if name == "log_softmax":
        return "shares"
    has_dimension = len(args) > 1 or "dim" in (kwargs or {})
    if name == "sum" and has_dimension:
        return "sums"
    return "logarithms" if name == "logsumexp" else None


def _of_sums(name: str, args: Args, kinds: list[_Kind]) -> _Kind | Literal["found"] | None:
    """Return what a call makes of the sums over the rows, or of their logarithms."""
    kind = kinds[-1]
    fits = name in (_QUOTIENTS if kind == "sums" else _DIFFERENCES)
    if not fits or len(args) < 2 or not all(isinstance(one, Tensor) for one in args[:2]):
        return None
    return "shares" if kinds[0] == "similarities" else "found"


def _is_mask_of_others(args: Args, shares: Tensor) -> bool:
    """Return whether a product takes some shares of each row, but not that of the row itself."""
    masks = [one for one in args if isinstance(one, Tensor) and one is not shares]
    if len(masks) != 1 or masks[0].shape != shares.shape or not has_numbers(masks[0]):
        return False
    mask = masks[0]
    are_flags = bool(((mask == 0) | (mask == 1)).all())
    return are_flags and bool(mask.any()) and not bool(mask.diagonal().any())


def _compares_with_itself(operands: Args) -> bool:
    """Return whether two operands are views of the same rows."""
    if len(operands) < 2:
        return False
    one, other = operands[:2]
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or not one.requires_grad:
        return False
    if one.is_nested or other.is_nested or not 2 <= one.ndim <= 3 or one.numel() != other.numel():
        return False
    return has_numbers(one) and has_numbers(other) and one.data_ptr() == other.data_ptr()
