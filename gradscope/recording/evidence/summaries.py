"""What is left of a long run's steps that are no longer kept whole."""

from typing import ClassVar, Literal

from gradscope.frozen import dataclass

SeriesKind = Literal["loss", "norm", "raw", "rate"]
"""`raw` is the norm before clips, `norm` the one that the optimizer used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """Consecutive steps of which only some are kept whole."""

    table: ClassVar[str] = "step_summary"
    first: int
    """Index of the first step."""
    count: int
    """Number of steps."""
    bucket: int
    """Number of steps in a bucket of its series."""
    block_first: int
    """First of the consecutive steps that are kept whole and stand for the others."""
    block: int
    """Number of these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSummary:
    """A number of an optimizer's steps, by bucket; columns of big-endian doubles."""

    table: ClassVar[str] = "series_summary"
    first: int
    """First step of the summary that it belongs to."""
    kind: SeriesKind
    optimizer: int | None
    """Index of its `TrainedOptimizer` record; None if unknown."""
    counts: bytes
    """Steps with a finite number, by bucket."""
    broken: bytes
    """Steps in which it was NaN or infinite, by bucket."""
    lowest: bytes
    highest: bytes
    mean: bytes
    last: bytes
    lowest_at: bytes
    """Steps of the lowest numbers."""
    highest_at: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineSummary:
    """The cosines that clips at a line leave over the steps of a summary, counted by hundredth."""

    table: ClassVar[str] = "cosine_summary"
    first: int
    """First step of the summary that it belongs to."""
    site: int
    """Line of the clip."""
    lowest: int
    """First hundredth: it counts the cosines from `lowest / 100` to less than 0.01 above."""
    counts: bytes
    """Number of steps by hundredth; a column of big-endian doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """What a recording lacks because it is bounded, beside summarised steps."""

    table: ClassVar[str] = "size_limit"
    limit: int
    """Largest size in bytes."""
    captures: int
    """Number of captured steps that were dropped."""
    events: int
    """Number of events around which steps were not kept whole."""
    gradients: int
    """Number of gradients that were not stored."""
    norms: int
    """Number of steps whose parameter norms were not stored."""
    is_full: bool | None = None
    """Whether the file came near its largest size. Otherwise there was more than is kept of any
    long run. None if it is not known, in files of earlier versions.
    """
