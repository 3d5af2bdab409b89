"""Options of `gradscope check`; None for an option that was not given."""

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

_CHECK = "Check"
_BASELINE = "Baseline"

DEFAULT_BASELINE = Path(".gradscope-baseline.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateGroup:
    """Options that say when the check fails."""

    fail_level: Annotated[
        Severity | None,
        typer.Option(
            "--fail-level",
            help="Lowest level that fails the check. Default: error.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    max_warnings: Annotated[
        int | None,
        typer.Option(
            "--max-warnings",
            min=0,
            metavar="N",
            help="Fail above N warnings.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    max_grad_norm: Annotated[
        float | None,
        typer.Option(
            "--max-grad-norm",
            metavar="X",
            help="Fail if the global gradient norm is larger.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    min_grad_norm: Annotated[
        float | None,
        typer.Option(
            "--min-grad-norm",
            metavar="X",
            help="Fail if the global gradient norm is smaller.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Run each target with N seeds, and check the worst.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="S",
            help="Timeout in seconds for each run.",
            rich_help_panel=_CHECK,
        ),
    ] = None
    exit_zero: Annotated[
        bool,
        typer.Option(
            "--exit-zero",
            help="Exit with code 0 even with findings; still 2 if nothing could be checked.",
            rich_help_panel=_CHECK,
        ),
    ] = False

    def running(self) -> Mapping[str, Value]:
        """Return the given options that say how targets run, by their configuration keys."""
        given = given_in(self)
        return {key: given[key] for key in ("seeds", "timeout") if key in given}

    def settings(self, rules: RulesGroup, configured: Settings) -> Settings:
        """Return the configured settings with the options applied.

        Raises:
            GradscopeError: An option names no rule.
        """
        return settings_of(
            rules, configured, max_grad_norm=self.max_grad_norm, min_grad_norm=self.min_grad_norm
        )

    def policy(self, configured: Policy) -> Policy:
        """Return the configured policy with the options applied."""
        given = given_in(self)
        changes = {"exit_zero": self.exit_zero} | {
            key.replace("-", "_"): given[key]
            for key in ("fail-level", "max-warnings")
            if key in given
        }
        return replace(configured, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineGroup:
    """Options for findings that are already known."""

    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="Ignore findings listed in FILE, unless they became worse.",
            rich_help_panel=_BASELINE,
        ),
    ] = None
    write_baseline: Annotated[
        bool,
        typer.Option(
            "--write-baseline",
            help=f"Write all findings to the baseline. Default file: {DEFAULT_BASELINE}.",
            rich_help_panel=_BASELINE,
        ),
    ] = False
    prune_baseline: Annotated[
        bool,
        typer.Option(
            "--prune-baseline",
            help="Remove findings that no longer occur from the baseline.",
            rich_help_panel=_BASELINE,
        ),
    ] = False
    strict_baseline: Annotated[
        bool | None,
        typer.Option(
            "--strict-baseline/--no-strict-baseline",
            help="Fail if the baseline lists findings that no longer occur.",
            rich_help_panel=_BASELINE,
        ),
    ] = None
    baseline_tolerance: Annotated[
        float | None,
        typer.Option(
            "--baseline-tolerance",
            min=1.0,
            metavar="X",
            help="Factor by which a known finding may become worse. Default: 2.",
            rich_help_panel=_BASELINE,
        ),
    ] = None

    def chosen(self, configured: BaselineOptions) -> BaselineOptions:
        """Return the configured baseline with the options applied; its path is absolute."""
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
