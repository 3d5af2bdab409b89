"""Gives parts of a batch the random numbers of the whole batch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.capture.observed_calls import Args, Kwargs
from gradscope.frozen import dataclass

_NOISE = (
    "bernoulli",
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "multinomial",
    "normal",
    "normal_",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random_",
    "uniform_",
)
"""Operations that return independent noise per example. Permutations are excluded: a part of one is
no permutation of the part."""

_FUSED_DROPOUT = "native_dropout"
"""Dropout operation of some devices: it returns the scaled input and the mask."""

_Key = tuple[bytes, str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Draw:
    operation: str
    scalars: tuple[object, ...]
    """Numeric arguments, such as a probability."""
    values: Tensor


@dataclass(frozen=True, slots=True)
class Part:
    """Examples of a batch."""

    start: int
    size: int
    rows: int
    """Number of examples in the whole batch."""


class EqualDraws:
    """Random numbers of a batch's forward, for the forwards of its parts.

    ```
    draws = EqualDraws()
    with draws.kept():
        ...  # forward and backward of the whole batch
    with draws.given(part):
        ...  # of a part
    ```

    Each draw is identified by the generator's state before it. A checkpoint, which draws again in
    backward, therefore gets the numbers of its forward.
    """

    def __init__(self) -> None:
        self._draws: list[_Draw] = []
        self.unmatched = 0
        """Draws of parts without matching numbers of the whole batch."""

    @property
    def count(self) -> int:
        """Return the number of draws stored."""
        return len(self._draws)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Store the random numbers that the block draws."""
        keeper = _Keeper()
        with keeper:
            yield
        self._draws = keeper.draws
        self.unmatched += keeper.unmatched

    @contextmanager
    def given(self, part: Part) -> Iterator[None]:
        """Give the block the part's share of the stored numbers."""
        giver = _Giver(self._draws, part)
        with giver:
            yield
        self.unmatched += giver.unmatched


class _DrawMode(TorchDispatchMode):
    """Observes every operation that draws, and its index among the draws of the run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unmatched = 0
        self._positions: dict[_Key, int] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs = None
    ) -> object:
        named = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **named)
        generator = _generator(args, named)
        if generator is None:
            self.unmatched += 1
            return func(*args, **named)
        # The state identifies a draw: a checkpoint restores it before it draws again.
        before = generator.get_state()
        result = func(*args, **named)
        # The tag marks operations that may draw. This call did not.
        if torch.equal(generator.get_state(), before):
            return result
        name = func.overloadpacket.__name__
        noise = result[1] if name == _FUSED_DROPOUT else result
        if not isinstance(noise, Tensor) or name not in (*_NOISE, _FUSED_DROPOUT):
            self.unmatched += 1
            return result
        key = (bytes(before.tolist()), name, tuple(noise.shape))
        position = self._positions.setdefault(key, len(self._positions))
        self.drawn(position, _Draw(name, _scalars(args, named), noise))
        if name == _FUSED_DROPOUT:
            return _dropped(args, noise), noise
        return result

    def drawn(self, position: int, draw: _Draw) -> None:
        """Process a draw, whose values may be changed."""
        raise NotImplementedError


class _Keeper(_DrawMode):
    def __init__(self) -> None:
        super().__init__()
        self.draws: list[_Draw] = []

    def drawn(self, position: int, draw: _Draw) -> None:
        # A known position is a draw that a checkpoint repeats in backward.
        if position == len(self.draws):
            self.draws.append(_Draw(draw.operation, draw.scalars, draw.values.detach().clone()))


class _Giver(_DrawMode):
    def __init__(self, draws: list[_Draw], part: Part) -> None:
        super().__init__()
        self._draws, self._part = draws, part

    def drawn(self, position: int, draw: _Draw) -> None:
        kept = self._draws[position] if position < len(self._draws) else None
        is_alike = kept is not None and (kept.operation, kept.scalars) == (
            draw.operation,
            draw.scalars,
        )
        values = _part_of(kept.values, draw.values, self._part) if kept and is_alike else None
        if values is None:
            self.unmatched += 1
        else:
            # In place, because operations such as `bernoulli_` return one of their arguments.
            draw.values.copy_(values)


def _part_of(whole: Tensor, like: Tensor, part: Part) -> Tensor | None:
    """Return a part's share of the whole batch's numbers, None if the shapes do not fit."""
    if whole.ndim != like.ndim:
        return None
    sizes = enumerate(zip(whole.shape, like.shape, strict=True))
    differing = [dimension for dimension, (one, other) in sizes if one != other]
    if not differing:
        return whole
    if len(differing) > 1:
        return None
    (dimension,) = differing
    each, rest = divmod(whole.shape[dimension], part.rows)
    if rest or like.shape[dimension] != each * part.size:
        return None
    return whole.narrow(dimension, part.start * each, part.size * each)


def _scalars(args: Args, kwargs: Mapping[str, object]) -> tuple[object, ...]:
    given = (*args, *(kwargs[name] for name in sorted(kwargs)))
    return tuple(value for value in given if isinstance(value, bool | int | float))


def _dropped(args: Args, mask: Tensor) -> Tensor:
    given, probability = args[0], args[1]
    assert isinstance(given, Tensor)
    assert isinstance(probability, float | int)
    scale = 0.0 if probability == 1 else 1 / (1 - probability)
    # Computed again from the mask that was replaced: the operation used its own.
    return given * mask * scale


def _generator(args: Args, kwargs: Mapping[str, object]) -> torch.Generator | None:
    """Return the generator of an operation, None on devices of other kinds."""
    given = (*args, *kwargs.values())
    for value in given:
        if isinstance(value, torch.Generator):
            return value
    device = kwargs.get("device") or next(
        (value.device for value in given if isinstance(value, Tensor)), None
    )
    if not isinstance(device, torch.device) or device.type in ("cpu", "meta"):
        return torch.default_generator
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
