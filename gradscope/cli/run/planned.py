"""How a planned run leaves the parser."""


class Planned:
    """A run that a command line asks for: how a program is to be run, and what is done with it."""

    __slots__ = ()


class RunPlanned(Exception):  # noqa: N818 - it is no error
    """Carries a planned run out of the parser, which would handle exceptions of the script."""

    def __init__(self, run: Planned) -> None:
        super().__init__("run")
        self.run = run
