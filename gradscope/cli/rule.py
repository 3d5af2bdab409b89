"""`gradscope rule`."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from gradscope.cli import options
from gradscope.cli.console import make_console
from gradscope.cli.options import with_groups
from gradscope.cli.output import check_destinations, set_verbosity, write_text
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from rich.console import Console

    from gradscope.rules.rule import Rule

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
WhyOption = Annotated[
    Path | None,
    Option(
        "--why",
        metavar="RECORDING",
        help="Show what the rule measured on a recording, and why it found something or not.",
        panel="Recording",
        show_default=False,
    ),
]


@with_groups
def rule(
    rule: RuleArgument = "all",
    why: WhyOption = None,
    output_format: ManualFormatOption = "text",
    output_file: options.OutputFileOption = "-",
    quiet: options.NoProgressOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Explain rules: what they find, how they measure it, and how to fix it."""
    set_verbosity(quiet=quiet, verbose=False)
    inputs = [] if why is None else [why]
    destination = check_destinations(output_file, None, force=False, inputs=inputs).report
    from gradscope.report.rule_manual import render_manual, render_table
    from gradscope.rules.manual import manual_of
    from gradscope.rules.selection import rules_named

    found = rules_named(rule)
    is_one = rule.strip().lower() in (found[0].code.lower(), found[0].name)
    console = make_console(sys.stdout if destination is None else io.StringIO(), color)
    if why is not None:
        if not is_one:
            raise GradscopeError(
                f"--why explains one rule, but `{rule}` names {len(found)}",
                help=f"give a code, such as `gradscope rule {found[0].code} --why {why}`",
            )
        text = explained(found[0], why, output_format, console)
    elif is_one:
        text = render_manual(manual_of(found[0]), output_format, console)
    else:
        text = render_table(found, output_format, console)
    write_text(text, destination, sys.stdout)


def explained(
    kind: "type[Rule]",
    recording: Path,
    output_format: Literal["text", "json", "markdown"],
    console: "Console",
) -> str:
    """Return what a rule measured on a recording, without a last line break."""
    from gradscope.config import configured_settings
    from gradscope.recording.store import load_recording
    from gradscope.report.explanation import render_explanation
    from gradscope.rules.explanation import explain

    loaded = load_recording(recording)
    explanation = explain(loaded, kind, configured_settings(None))
    root = loaded.target.root
    return render_explanation(explanation, str(recording), root, output_format, console)
