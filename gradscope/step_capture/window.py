"""Observes the calls between two optimizer steps."""

import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack

from torch import Tensor
from torch._C import DisableTorchFunction
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.capture.source.lines import Line, sequence_number
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.writes import Write, has_versions, watch_parameters_made
from gradscope.capture.training.state import TrainingState
from gradscope.probes.scaled_backward import autocast_lines
from gradscope.step_capture.forward_watch import Constants, ForwardWatch
from gradscope.step_capture.mode import CaptureMode
from gradscope.step_capture.script_models import LiveSources


class Window:
    """The time from one optimizer step to the next. Its calls are observed while it is open.

    Args:
        mode: Observes the calls.
        training: State of the training.
        earlier: The previous window, if it was captured: some graphs reach back into it.
        constants: Calls known to write infinity intentionally.
        is_full: Whether it is captured in full.
    """

    def __init__(
        self,
        mode: CaptureMode,
        training: TrainingState,
        earlier: "Window | None",
        constants: Constants,
        *,
        is_full: bool,
    ) -> None:
        self._mode = mode
        self.is_full = is_full
        self.capture = StepCapture([])
        self.capture.sites.earlier = None if earlier is None else earlier.capture.sites
        self.capture.writes.earlier = None if earlier is None else earlier.capture.writes
        self.capture.backwards.earlier = None if earlier is None else earlier.capture.backwards
        self.values = ForwardWatch(LiveSources(training).of, constants, measures=is_full)
        self.captured: Counter[tuple[int, int] | None] = Counter()
        """Number of captures of the backward at each line."""
        self.passed: set[int] = set()
        """Sequence numbers of the nodes of captured backwards."""
        self.is_whole = True
        """Whether every backward so far was captured."""
        self._thread = threading.get_ident()
        self._open = ExitStack()

    def open(self) -> None:
        """Start observing."""
        self.capture.modules.holds_all = False
        self.capture.modules.start()
        self._open.callback(self.capture.modules.stop)
        self._open.enter_context(watch_parameters_made(self.capture.cuts))
        self._open.enter_context(self.capture.checkpoints.watch())
        self.autocasts = self._open.enter_context(autocast_lines())
        self._mode.observe(self.capture.sites, self.values)
        self._open.callback(self._mode.stop_observing)

    @property
    def is_here(self) -> bool:
        """Whether this thread is the observed one."""
        return self._thread == threading.get_ident() and self._mode.is_observing

    def note_step(self, parameters: Iterable[Tensor], line: Line | None) -> None:
        """Record that a step wrote to parameters, whatever its operations."""
        with DisableTorchFunction():
            writes = self.capture.writes
            writes.writes = [write for write in writes.writes if write.line != line]
            writes.writes += [
                Write(
                    "step",
                    line,
                    StorageWeakRef(one.untyped_storage()),
                    one._version,
                    tuple(one.shape),
                    sequence_number(),
                )
                for one in parameters
                if has_versions(one)
            ]

    def close(self) -> None:
        """Stop observing, and release every tensor. The lines of nodes remain known."""
        self._open.close()
        self.capture.close()
        for trail in (self.capture.sites, self.capture.writes, self.capture.backwards):
            if trail.earlier is not None:
                trail.earlier.earlier = None  # what is older can be dropped
