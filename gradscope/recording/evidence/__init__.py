"""Results of the probes besides gradients: one file per topic, and all kinds together.

A kind of evidence is a frozen dataclass with a `table`. Its fields are numbers, strings, shapes,
tensor references, and tuples or dataclasses of these. The recording's file gets a table for it.
"""

from collections.abc import Iterator
from types import ModuleType

from gradscope.recording.evidence import (
    batches,
    failures,
    forward,
    parameters,
    ranks,
    summaries,
    training,
)


def _kinds(*topics: ModuleType) -> Iterator[type]:
    for topic in topics:
        for kind in vars(topic).values():
            is_own = isinstance(kind, type) and kind.__module__ == topic.__name__
            if is_own and "table" in vars(kind):
                yield kind


EVIDENCE: tuple[type, ...] = tuple(
    sorted(
        _kinds(batches, failures, forward, parameters, ranks, summaries, training),
        key=lambda kind: kind.__name__,
    )
)
"""Every kind, in the order of their tables in a file."""
