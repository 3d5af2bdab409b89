"""The arguments of the callbacks."""

from collections.abc import Iterable
from os import PathLike
from typing import TypedDict

from gradscope.recording.finding import Severity


class CallbackArguments(TypedDict, total=False):
    """Arguments of a callback."""

    save: str | PathLike[str] | None
    """File of the recording. A number is added if it exists, and the rank in a distributed job. A
    training that is resumed from a checkpoint continues the recording. Without it, there is no
    file."""
    fail_level: Severity | None
    """Raise `UnhealthyGradientsError` at the end if there are findings of this level or above."""
    budget: float | None
    every: int | None
    tensor_every: int | None
    tensors: bool
    """These four are those of `gradscope.watch`."""
    select: str | Iterable[str]
    """Rules to run."""
    ignore: str | Iterable[str]
    """Rules to leave out."""
