"""`gradscope rule`."""

import io
import sys
from typing import Annotated, Literal

from gradscope.cli import options
from gradscope.cli.console import make_console
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import check_destinations, set_verbosity, write_text
from gradscope.options.declaration import Argument, Option

RuleArgument = Annotated[
    str,
    Argument(
        metavar="[RULE]",
        help="Code or name: show the manual of one rule. Prefix or family, such as GS2 or reach: "
        "list its rules. Default: list all rules.",
        show_default=False,
    ),
]
ManualFormatOption = Annotated[
    Literal["text", "json", "markdown"],
    Option("--output-format", help="Output format.", panel="Output"),
]


@with_groups
def rule(
    rule: RuleArgument = "all",
    output_format: ManualFormatOption = "text",
    output_file: options.OutputFileOption = "-",
    quiet: options.QuietOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Explain rules: what they find, how they measure it, and how to fix it."""
    set_verbosity(quiet=quiet, verbose=False)
    destination = check_destinations(output_file, None, force=False).report
    from gradscope.report.rule_manual import render_manual, render_table
    from gradscope.rules.manual import manual_of
    from gradscope.rules.selection import rules_named

    found = rules_named(rule)
    console = make_console(sys.stdout if destination is None else io.StringIO(), color)
    if rule.strip().lower() in (found[0].code.lower(), found[0].name):
        text = render_manual(manual_of(found[0]), output_format, console)
    else:
        text = render_table(found, output_format, console)
    write_text(text, destination, sys.stdout)
