"""`gradscope config`."""

import io
import sys
from pathlib import Path
from typing import Annotated, Literal

from gradscope.cli import options
from gradscope.cli.console import make_console
from gradscope.cli.options import with_groups
from gradscope.cli.output import check_destinations, set_verbosity, write_text
from gradscope.options.declaration import Argument, Option

KeyArgument = Annotated[
    str | None,
    Argument(
        metavar="KEY",
        help="Only this key and what is below it, as targets.small, rules or rules.dead-unit; "
        "with what nobody set.",
        show_default=False,
    ),
]
FileOption = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE",
        help="Read [tool.gradscope] from FILE instead of the nearest pyproject.toml.",
        panel="Configuration",
    ),
]
ListingFormatOption = Annotated[
    Literal["text", "json"],
    Option("--output-format", help="Output format.", panel="Output"),
]


@with_groups
def config(
    key: KeyArgument = None,
    config: FileOption = None,
    output_format: ListingFormatOption = "text",
    output_file: options.OutputFileOption = "-",
    quiet: options.NoProgressOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Show the effective configuration: every key, its value, and where it comes from."""
    set_verbosity(quiet=quiet, verbose=False)
    inputs = () if config is None else (config,)
    destination = check_destinations(output_file, None, force=False, inputs=inputs).report
    from gradscope.config import read_configuration
    from gradscope.config.listing import entries
    from gradscope.report.configuration_listing import render_configuration

    configuration = read_configuration(config)
    console = make_console(sys.stdout if destination is None else io.StringIO(), color)
    shown = entries(configuration, key)
    write_text(
        render_configuration(configuration, shown, output_format, console), destination, sys.stdout
    )
