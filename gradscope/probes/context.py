"""The input of a probe: a model right after a backward."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from gradscope.capture.compiler import watchable
from gradscope.capture.naming import NamedModel
from gradscope.capture.source.definitions import Definitions
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph_records import GraphPosition
from gradscope.capture.step.measurements import Measurements
from gradscope.probes.snapshot import RandomStates
from gradscope.target.target import Outcome, Target


def is_made(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the construction of an optimizer is finished."""
    # `Optimizer.__init__` may have raised before it set them.
    return hasattr(optimizer, "param_groups")


@dataclass(frozen=True, kw_only=True)
class ProbeContext:
    """A model right after the backward of the judged step, before the optimizer step.

    A probe must leave parameters and their gradients unchanged. Everything else is restored when
    the inspection ends.
    """

    target: Target
    named: NamedModel
    assembler: Assembler
    """Receives the results: `context.assembler.note(record)`."""
    definitions: Definitions
    """Lines that made modules, parameters and optimizers, as far as they were observed."""
    capture: StepCapture
    """Capture of the step; its graph is alive, its saved tensors are freed."""
    measured: Measurements
    loss: float | None
    terms: int
    """Number of named scalars besides the loss."""
    opaque: bool
    """Whether compiled code runs, which must not meet modes or hooks."""
    reruns: bool
    """Whether the forward may be run again."""
    random_states: RandomStates | None
    """Random states at the start of its forward; None if it cannot be run again."""
    micro_batches: int | None = None
    """Number of parts to split the batch into, None for no split."""
    overfit: int | None = None
    """Number of steps to train on the one batch, None for none."""
    of_run: bool = False
    """Whether the backward is a script's own, whose optimizers are all in use."""

    @cached_property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """All known optimizers, those of the target first."""
        given = [self.target.optimizer, self.target.stale_optimizer]
        known = [one for one in (*given, *self.definitions.optimizers) if one is not None]
        return tuple(one for one in dict.fromkeys(known) if one in given or is_made(one))

    @cached_property
    def position(self) -> GraphPosition:
        """Position of the graph's records: node `n` of the capture is `position.first_node + n`."""
        return self.assembler.position_of(self.capture)

    @contextmanager
    def as_at_first(self) -> Iterator[None]:
        """Run the block with the random states of that forward, then restore the current ones."""
        before = RandomStates.now()
        if self.random_states is not None:
            self.random_states.restore()
        try:
            yield
        finally:
            before.restore()

    @contextmanager
    def watched_as_at_first(self) -> Iterator[None]:
        """Run the block as that forward, with gradients, under modes and hooks of probes."""
        with (
            self.as_at_first(),
            # The caller may inspect in inference mode, in which nothing requires grad.
            torch.inference_mode(False),
            torch.enable_grad(),
            watchable(),
        ):
            yield

    def forward(self) -> Outcome:
        """Run the forward again, with the same random states."""
        with self.watched_as_at_first():
            return self.target.forward()
