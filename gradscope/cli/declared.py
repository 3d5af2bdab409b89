"""Options and arguments of commands, declared without the parser that most commands need.

The parser takes as long to import as everything that `gradscope run` needs before the script runs,
and brings modules along that the script would find imported.
"""

Setting = str | int | bool | None


class Parameter:
    """What a parser is told of a parameter of a command, in an `Annotated` beside its type.

    Args:
        names: Those of an option, as they are typed.
        settings: As `typer.Option` and `typer.Argument` take them.
    """

    __slots__ = ("names", "settings")

    def __init__(self, *names: str, **settings: Setting) -> None:
        self.names, self.settings = names, settings


class Option(Parameter):
    """An option."""

    __slots__ = ()


class Argument(Parameter):
    """An argument, known by where it is."""

    __slots__ = ()
