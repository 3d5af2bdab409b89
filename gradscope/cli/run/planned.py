"""How a planned run leaves the parser."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradscope.cli.run.command import PlainRun, PlannedRun
    from gradscope.cli.run.rank_launching import PlannedRanks


class RunPlanned(Exception):  # noqa: N818 - it is no error
    """Carries a planned run out of the parser, which would handle exceptions of the script."""

    def __init__(self, run: "PlannedRun | PlainRun | PlannedRanks") -> None:
        super().__init__("run")
        self.run = run
