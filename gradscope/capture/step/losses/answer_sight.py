"""Tells whether a language model sees the tokens that its loss asks it for."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import whole
from gradscope.capture.source.lines import Line, created
from gradscope.capture.step.graph import edges
from gradscope.capture.step.losses.convolution_sight import (
    CONVOLUTION,
    sees_next,
    stays_in_place,
)
from gradscope.capture.step.sequences.positions import (
    FUSED,
    PRODUCTS,
    WHOLE,
    attention,
    next_seen,
)
from gradscope.capture.step.sequences.tokens import Ahead, tokens_ahead

_LOOKUP = "embedding"
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_LOSSES = frozenset({"cross_entropy", "nll_loss"})
_CHOICE = "gather"
_ONE_HOT = frozenset({"one_hot", "scatter", "scatter_"})
"""Functions that turn classes into a distribution over them."""
_OF_DISTRIBUTIONS = frozenset({"kl_div", "mul"})
"""Functions of logarithms and a distribution."""

_MOST_TOKENS = 8
"""Number of tensors of tokens that are kept until the end of a forward."""
_MOST_MIXERS = 64
"""Number of attentions and recurrent layers that are kept."""
_MOST_NODES = 5_000
"""Number of operations in which the origin of a tensor is searched for."""
_TWICE = 2
"""Number of positions by which a loss and its data together may shift the targets."""
_LEAST = 16
"""Number of targets below which an agreement may be chance."""


class SeenAnswer(NamedTuple):
    """A loss whose targets stand in what its model sees at the same position."""

    line: Line | None
    operation: str
    mixer: Line | None
    """Line of the layer that passes the answer on, or of one that does not look ahead."""
    number: int
    """Sequence number of the layer's result."""
    ahead: int
    """1 if the targets are the next tokens, 0 if they are those at the position itself, 2 if they
    are those after the next."""
    targets: int
    """Number of targets that count."""
    seen: int
    """Number of them that are visible."""


class _Tokens(NamedTuple):
    tokens: Tensor
    number: int
    """Sequence number of the node that looked them up."""

    def has_same(self, other: "_Tokens") -> bool:
        """Return whether two lookups are of the same text."""
        are_near = self.tokens.device == other.tokens.device
        return are_near and torch.equal(self.tokens, other.tokens)


class _Mixer(NamedTuple):
    """A layer that mixes the positions of known tokens."""

    tokens: int
    number: int
    line: Line | None
    ahead: Tensor | None
    """By sequence and position: whether it sees the next one. None if all do."""
    is_blind: bool
    """Whether no position sees the next one."""
    is_fixed: bool = False
    """Whether it sees few positions around each one, so that a shift behind it counts."""


class AnswerSightObserver(Observer):
    """Compares the targets of a loss with the tokens that attention lets its model see.

    What one position passes to another stays by position from the lookup of the tokens to the
    layer, and from there to the prediction: what is pooled in between is not followed.
    """

    names = (
        PRODUCTS
        | _RECURRENT
        | _LOSSES
        | _ONE_HOT
        | _OF_DISTRIBUTIONS
        | {_LOOKUP, CONVOLUTION, FUSED, WHOLE, _CHOICE}
    )

    def __init__(self) -> None:
        self.found: list[SeenAnswer] = []
        self._tokens: list[_Tokens] = []
        self._mixers: list[_Mixer] = []
        self._spread: dict[torch.Size, Tensor] = {}
        """By shape of a distribution: the classes from which it was made."""

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether tokens are looked up, positions are mixed, or a loss is computed."""
        if not torch.is_grad_enabled():
            return False
        if name == _LOOKUP:
            return len(self._tokens) < _MOST_TOKENS
        if name in _OF_DISTRIBUTIONS:
            return bool(self._spread) and _logarithms(args) is not None
        if name in _LOSSES or name in _ONE_HOT or name == _CHOICE:
            return bool(self._mixers)
        return bool(self._tokens) and len(self._mixers) < _MOST_MIXERS

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Keep tokens and what mixes their positions, and judge a loss."""
        given = kwargs or {}
        with DisableTorchFunction(), torch.no_grad():
            if name == _LOOKUP:
                self._look_up(argument(args, given, 0, "input"), result)
            elif name in _ONE_HOT:
                self._spread_out(args, given, result)
            elif name in _OF_DISTRIBUTIONS:
                prediction = _logarithms(args)
                classes = None if prediction is None else self._spread.get(prediction.shape)
                if prediction is not None and classes is not None:
                    self._judge(name, (prediction, classes), {}, line)
            elif name in _LOSSES or name == _CHOICE:
                self._judge(name, args, given, line)
            elif name in _RECURRENT:
                self._see_recurrent(args, result, line)
            elif name == CONVOLUTION:
                self._see_convolution(args, given, result, line)
            else:
                self._see_attention(name, args, given, result, line)

    def close(self) -> None:
        """Release the tokens."""
        self.found.clear()
        self._tokens.clear()
        self._mixers.clear()
        self._spread.clear()

    def _look_up(self, tokens: object, result: object) -> None:
        number = _number(result)
        if number is None or not isinstance(tokens, Tensor) or tokens.is_nested:
            return
        # Rows and positions; a lookup of other shapes is one of classes or positions.
        if tokens.ndim == 2 and min(tokens.shape) > 0:
            self._tokens.append(_Tokens(tokens, number))

    def _see_recurrent(self, args: Args, result: object, line: Line | None) -> None:
        # `batch_first` is last, before it whether it is bidirectional. Packed sequences have
        # another order of arguments, and no positions.
        number = _number(result[0] if isinstance(result, tuple) else result)
        first = args[0] if args else None
        if number is None or not isinstance(first, Tensor) or not isinstance(args[-1], bool):
            return
        if first.ndim != 3 or len(args) < 9 or not isinstance(args[-2], bool):
            return
        rows, length = first.shape[:2] if args[-1] else (first.shape[1], first.shape[0])
        tokens = self._behind(first, rows, length)
        if tokens is not None:
            self._mixers.append(_Mixer(tokens, number, line, None, is_blind=not args[-2]))

    def _see_convolution(
        self, args: Args, given: Mapping[str, object], result: object, line: Line | None
    ) -> None:
        number, length = _number(result), sees_next(args, given, result)
        first = argument(args, given, 0, "input")
        if number is None or length is None or not isinstance(first, Tensor):
            return
        tokens = self._behind(first, first.shape[0], length)
        # The same text may be given to an encoder, which sees all of it, and to a decoder.
        if tokens is None or sum(map(self._tokens[tokens].has_same, self._tokens)) > 1:
            return
        if stays_in_place(first, self._tokens[tokens].number):
            self._mixers.append(_Mixer(tokens, number, line, None, is_blind=False, is_fixed=True))

    def _see_attention(
        self,
        name: str,
        args: Args,
        given: Mapping[str, object],
        result: object,
        line: Line | None,
    ) -> None:
        number = _number(result[0] if isinstance(result, tuple) else result)
        found = None if number is None else attention(name, args, given)
        if number is None or found is None:
            return
        keys, visible, length = found
        for position, one in enumerate(self._tokens):
            rows = next((n for n in _rows(one.tokens, length)), None)
            if rows is None or not _leads_to(keys, one.number, rows, length):
                continue
            # Kept as one row per sequence: the whole mask would be as large as the attention.
            ahead = None if visible is None else next_seen(visible, rows)
            if visible is None or ahead is not None:
                blind = ahead is not None and not bool(ahead.any())
                self._mixers.append(_Mixer(position, number, line, ahead, is_blind=blind))
            return

    def _spread_out(self, args: Args, given: Mapping[str, object], result: object) -> None:
        # `one_hot(classes)` or `scatter(zeros, dimension, classes, number)`.
        classes = args[0] if len(args) < 3 else args[2]
        classes = given.get("index", classes)
        if not isinstance(result, Tensor) or not isinstance(classes, Tensor):
            return
        if result.ndim > 1 and result.numel() == classes.numel() * result.shape[-1]:
            self._spread[result.shape] = classes

    def _behind(self, tensor: Tensor, rows: int, length: int) -> int | None:
        """Return the tokens that a tensor is made of, position by position."""
        for position, one in enumerate(self._tokens):
            if {*one.tokens.shape} == {rows, length} and _leads_to(
                tensor, one.number, rows, length
            ):
                return position
        return None

    def _judge(
        self,
        name: str,
        args: Args,
        given: Mapping[str, object],
        line: Line | None,
    ) -> None:
        prediction = argument(args, given, 0, "input")
        target, ignored = _classes(name, args, given)
        if not isinstance(prediction, Tensor) or not isinstance(target, Tensor):
            return
        classes = None if target.is_floating_point() else whole(target)
        if classes is None or not isinstance(ignored, int):
            return
        found, is_hidden = list[SeenAnswer](), False
        for position, one in enumerate(self._tokens):
            mixers = [mixer for mixer in self._mixers if mixer.tokens == position]
            tokens = whole(one.tokens) if mixers else None
            known = None
            if tokens is not None:
                known = tokens_ahead(tokens, classes, ignored, cut=True)
            if known is None or known.positions > _TWICE:
                continue
            mixer = _passing(mixers, prediction, known, one.tokens.numel() // known.length)
            if mixer is not None:
                counted, seen = int(known.counts.sum()), _seen(mixer, known)
                ahead = known.positions
                found.append(SeenAnswer(line, name, mixer.line, mixer.number, ahead, counted, seen))
            # A decoder gets the answers that come before: what an encoder sees of the same text
            # is given to it.
            is_hidden |= mixer is None and known.positions == 1
        if found and not is_hidden:
            self.found.append(found[0])


def _classes(name: str, args: Args, given: Mapping[str, object]) -> tuple[object, object]:
    """Return the classes of a loss, and the one that does not count."""
    if name == _CHOICE:
        # 0 is what labels of no meaning are replaced by.
        return argument(args, given, 2, "index"), 0
    target = argument(args, given, 1, "target")
    return target, args[4] if len(args) > 4 else given.get("ignore_index", -100)


def _passing(mixers: list[_Mixer], prediction: Tensor, known: Ahead, rows: int) -> _Mixer | None:
    """Return the layer that passes the answers on to a prediction, None without one."""
    counted = int(known.counts.sum())
    for mixer in mixers:
        seen = _seen(mixer, known)
        if seen < _LEAST or 2 * seen < counted:
            continue
        is_moved = mixer.is_fixed and not stays_in_place(prediction, mixer.number)
        if not is_moved and _leads_to(prediction, mixer.number, rows, known.length):
            return mixer
    return None


def _logarithms(args: Args) -> Tensor | None:
    """Return the operand that is made by a log-softmax, where the other one has no gradient."""
    for one, other in (args[:2], args[1::-1]) if len(args) > 1 else ():
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            return None
        is_made = one.grad_fn is not None and one.grad_fn.name() == "LogSoftmaxBackward0"
        if is_made and not other.requires_grad and one.shape == other.shape:
            return one
    return None


def _seen(mixer: _Mixer, known: Ahead) -> int:
    """Return how many of the targets that count are visible."""
    counts = known.counts
    if known.positions != 1:
        # A layer that hides what follows is of a model that predicts it.
        return int(counts.sum()) if mixer.is_blind else 0
    if mixer.is_blind:
        return 0
    counts = counts[:, :-1]
    if mixer.ahead is None:
        return int(counts.sum())
    seen = mixer.ahead[: counts.shape[0], : counts.shape[1]]
    if seen.device != counts.device or seen.shape[1] != counts.shape[1]:
        return 0
    return int((seen & counts).sum())


def _rows(tokens: Tensor, length: int) -> Iterable[int]:
    first, second = tokens.shape
    if second == length:
        yield first
    if first == length:
        yield second


def _leads_to(tensor: Tensor, number: int, rows: int, length: int) -> bool:
    """Return whether a tensor is made of the result of a node, position by position."""
    start = [one.node for one in edges(tensor) if one.node is not None]
    waiting: list[Node] = start
    met: set[Node] = set(start)
    while waiting and len(met) < _MOST_NODES:
        node = waiting.pop()
        own = created(node)
        if own == number:
            return True
        # A node is made after all that it depends on.
        if own is None or own < number:
            continue
        for one, slot in node.next_functions:
            if one is not None and one not in met and _keeps_positions(one, slot, rows, length):
                met.add(one)
                waiting.append(one)
    return False


def _keeps_positions(node: Node, slot: int, rows: int, length: int) -> bool:
    """Return whether a result has a row for each position of each sequence."""
    known = getattr(node, "_input_metadata", ())
    if slot >= len(known):
        return False
    shape = tuple(known[slot].shape)
    # Losses join rows and positions, and many drop the last position before.
    joined = {rows * length, rows * (length - 1)}
    return bool(joined.intersection(shape)) or (
        len(shape) > 2 and bool({length, length - 1}.intersection(shape))
    )


def _number(result: object) -> int | None:
    found = edges(result)
    node = found[0].node if found else None
    return None if node is None else created(node)
