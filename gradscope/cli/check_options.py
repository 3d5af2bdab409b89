"""The options that `gradscope check` alone has, in groups; None where one was not given."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gradscope.check.options import BaselineOptions, Policy
from gradscope.cli.options import RulesGroup, Value, given_in
from gradscope.cli.rules import settings_of
from gradscope.recording.finding import Severity
from gradscope.rules.settings import Settings

_GATE = "Gate"
_BASELINE = "Baseline"

DEFAULT_BASELINE = Path(".gradscope-baseline.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateGroup:
    """What makes the check fail."""

    fail_level: Annotated[
        Severity | None,
        typer.Option(
            "--fail-level",
            help="The mildest level that fails the check; error if not given.",
            rich_help_panel=_GATE,
        ),
    ] = None
    max_warnings: Annotated[
        int | None,
        typer.Option(
            "--max-warnings",
            min=0,
            metavar="N",
            help="Fail from more warnings than these on.",
            rich_help_panel=_GATE,
        ),
    ] = None
    max_grad_norm: Annotated[
        float | None,
        typer.Option(
            "--max-grad-norm",
            metavar="X",
            help="Fail where the global gradient norm is larger.",
            rich_help_panel=_GATE,
        ),
    ] = None
    min_grad_norm: Annotated[
        float | None,
        typer.Option(
            "--min-grad-norm",
            metavar="X",
            help="Fail where it is smaller.",
            rich_help_panel=_GATE,
        ),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Run each target under so many seeds, and judge the worst.",
            rich_help_panel=_GATE,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="S",
            help="Seconds after which a run is given up.",
            rich_help_panel=_GATE,
        ),
    ] = None
    exit_zero: Annotated[
        bool,
        typer.Option(
            "--exit-zero",
            help="Exit with 0 whatever is found; with 2 all the same where nothing is judged.",
            rich_help_panel=_GATE,
        ),
    ] = False

    def running(self) -> Mapping[str, Value]:
        """Return what was given of how targets run, by the configuration's keys."""
        given = given_in(self)
        return {key: given[key] for key in ("seeds", "timeout") if key in given}

    def settings(self, rules: RulesGroup, configured: Settings) -> Settings:
        """Return the settings of the configuration as the options change them.

        Raises:
            GradscopeError: An option names no rule.
        """
        return settings_of(
            rules, configured, max_grad_norm=self.max_grad_norm, min_grad_norm=self.min_grad_norm
        )

    def policy(self, configured: Policy) -> Policy:
        """Return the configured policy as the options change it."""
        given = given_in(self)
        changes = {"exit_zero": self.exit_zero} | {
            key.replace("-", "_"): given[key]
            for key in ("fail-level", "max-warnings")
            if key in given
        }
        return replace(configured, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineGroup:
    """Which findings are known already."""

    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="Do not count the findings that this file knows, unless they have become worse.",
            rich_help_panel=_BASELINE,
        ),
    ] = None
    write_baseline: Annotated[
        bool,
        typer.Option(
            "--write-baseline",
            help=f"Write all findings into the baseline, {DEFAULT_BASELINE} if none is named.",
            rich_help_panel=_BASELINE,
        ),
    ] = False
    prune_baseline: Annotated[
        bool,
        typer.Option(
            "--prune-baseline",
            help="Remove from it what is not found any more.",
            rich_help_panel=_BASELINE,
        ),
    ] = False
    strict_baseline: Annotated[
        bool | None,
        typer.Option(
            "--strict-baseline/--no-strict-baseline",
            help="Fail where it holds what is not found any more, or do not.",
            rich_help_panel=_BASELINE,
        ),
    ] = None
    baseline_tolerance: Annotated[
        float | None,
        typer.Option(
            "--baseline-tolerance",
            min=1.0,
            metavar="X",
            help="How many times worse a known finding may become; 2 if not given.",
            rich_help_panel=_BASELINE,
        ),
    ] = None

    def chosen(self, configured: BaselineOptions) -> BaselineOptions:
        """Return the configured baseline as the options change it; its file is absolute."""
        changed = configured
        if self.baseline is not None:
            changed = replace(changed, file=self.baseline.resolve())
        elif self.write_baseline and changed.file is None:
            changed = replace(changed, file=DEFAULT_BASELINE.resolve())
        if self.strict_baseline is not None:
            changed = replace(changed, is_strict=self.strict_baseline)
        if self.baseline_tolerance is not None:
            changed = replace(changed, tolerance=self.baseline_tolerance)
        return changed
