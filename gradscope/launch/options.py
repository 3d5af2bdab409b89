"""Options for recording a training."""

import math
from typing import Annotated

from gradscope.errors import GradscopeError
from gradscope.export.trackers import check_log
from gradscope.frozen import dataclass
from gradscope.options.checks import checked_option
from gradscope.options.declaration import Option, declarations
from gradscope.options.recording_options import RecordingOptions
from gradscope.recording.stored_gradient import KeepMode

_RECORDING, _OUTPUT = "Recording", "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(RecordingOptions):
    """Options that say how much of the training is recorded, and when it stops."""

    budget: Annotated[
        str,
        Option(
            metavar="SHARE",
            help="Largest slowdown of the training, such as 5%; none for no limit.",
            panel=_RECORDING,
        ),
    ] = "5%"
    every: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Measure gradients every Nth step. Default: as often as the budget allows.",
            python="Measure the gradients of every Nth step, whatever the budget.",
            panel=_RECORDING,
        ),
    ] = None
    tensor_every: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="Capture every tensor every Nth step; 0 captures the first steps only. "
            "Default: as often as the budget allows.",
            python="Capture every tensor of the first steps and of every Nth step, whatever the "
            "budget; 0 for the first steps only.",
            panel=_RECORDING,
        ),
    ] = None
    tensors_at: Annotated[
        list[int] | None,
        Option(
            min=0,
            metavar="STEP",
            help="Also capture every tensor at this step. Repeat for several steps.",
            panel=_RECORDING,
        ),
    ] = None
    no_tensors: Annotated[
        bool,
        Option(
            help="Capture no tensors: record only parameters and events.",
            panel=_RECORDING,
        ),
    ] = False
    keep_gradients: Annotated[
        KeepMode,
        Option(
            help="Store gradients for gradscope compare: every element, or a sketch of 4,096 "
            "numbers per parameter.",
            python="Store the gradients, for `gradscope compare`: `exact` for every element, or "
            "`sketch` for 4,096 numbers per large parameter.",
            panel=_RECORDING,
        ),
    ] = "none"
    keep_gradients_every: Annotated[
        int,
        Option(
            min=1,
            metavar="N",
            help="Store gradients at the first step of each optimizer, then every Nth step.",
            python="Store the gradients of the first step of each optimizer and of every Nth.",
            panel=_RECORDING,
        ),
    ] = 100
    max_steps: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Stop recording after N optimizer steps; the script continues.",
            panel=_RECORDING,
        ),
    ] = None
    stop_after: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Stop the script after N optimizer steps.",
            panel=_RECORDING,
        ),
    ] = None

    log: Annotated[
        list[str] | None,
        Option(
            metavar="TRACKER",
            help="Send metrics and findings to tensorboard:DIR, wandb, mlflow or trackio while the "
            "script runs. Repeat for several.",
            python="Send metrics and findings to `tensorboard:DIR`, `wandb`, `mlflow` or "
            "`trackio` during the training; one name or several.",
            panel=_OUTPUT,
        ),
    ] = None

    @property
    def share(self) -> float | None:
        """Budget as a share; None for no limit.

        Raises:
            GradscopeError: The budget is neither a share nor `none`.
        """
        text = self.budget.strip().lower()
        if text == "none":
            return None
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if not 0 < share < math.inf:
            raise GradscopeError(
                f"--budget is {self.budget!r}, expected a share such as 5%, or none"
            )
        return share

    def check(self) -> None:
        """Check that the options are compatible.

        Raises:
            GradscopeError: Recording would stop before the script does, the budget is not a
                share, or `--no-tensors` and `--tensors-at` are both given.
        """
        # Reading it raises for a wrong budget.
        _ = self.share
        if self.keep is not None:
            checked_option("keep", self.keep, declarations(WatchOptions)["keep"].check)
        for name in self.log or ():
            check_log(name)
        if self.no_tensors and self.tensors_at:
            raise GradscopeError(
                f"--no-tensors and --tensors-at {self.tensors_at[0]} cannot be combined",
                help="remove one of them",
            )
        if self.stop_after and self.max_steps and self.stop_after > self.max_steps:
            raise GradscopeError(
                f"--max-steps {self.max_steps} ends the recording before"
                f" --stop-after {self.stop_after}",
                help="remove --max-steps: nothing is recorded after the script ends",
            )
