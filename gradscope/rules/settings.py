"""The user's settings of the rules: selection, thresholds and limits."""

from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Annotated

from gradscope.frozen import dataclass
from gradscope.options import checks
from gradscope.options.checks import WrongValue
from gradscope.options.declaration import Option


def matches(path: str, pattern: str) -> bool:
    """Return whether a pattern matches a module; `encoder.*` matches `encoder` too."""
    return fnmatchcase(path, pattern) or fnmatchcase(f"{path}.", pattern)


Thresholds = Mapping[str, float]

_RULES = "Rules"

_CHECK = "Check"

WHOLE_MODEL = ""
"""Pattern of `Settings.norm_limits` for all parameters together."""


def selectors(value: object) -> tuple[str, ...]:
    """Return codes, prefixes of codes, families and names of rules, whether there are such or not.

    Raises:
        WrongValue: It is no list of strings.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise WrongValue("has to be a list of strings", help='such as ["GS101", "reach"]')
    return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLimit:
    """Limits of a gradient norm; both of them are allowed values."""

    maximum: Annotated[
        float | None,
        Option(
            "--max-grad-norm",
            metavar="X",
            help="Fail if the global gradient norm is larger.",
            panel=_CHECK,
            check=checks.number(0),
        ),
    ] = None
    minimum: Annotated[
        float | None,
        Option(
            "--min-grad-norm",
            metavar="X",
            help="Fail if the global gradient norm is smaller.",
            panel=_CHECK,
            check=checks.number(0),
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's choices; selectors are codes, prefixes of codes, families and names of rules."""

    select: Annotated[
        tuple[str, ...],
        Option(
            metavar="RULE",
            help="Run only these rules: codes, prefixes, families or names, such as GS101,flow.",
            python="Run only these rules: codes, prefixes of codes, families and names of rules. "
            "No configuration file is read.",
            panel=_RULES,
            check=selectors,
        ),
    ] = ()
    """Selected rules; empty for all."""
    ignore: Annotated[
        tuple[str, ...],
        Option(
            metavar="RULE",
            help="Skip these rules.",
            python="Do not run these rules.",
            panel=_RULES,
            check=selectors,
        ),
    ] = ()
    extend_select: Annotated[
        tuple[str, ...],
        Option(
            metavar="RULE",
            help="Run these rules in addition to the configured ones.",
            panel=_RULES,
            check=selectors,
        ),
    ] = ()
    """Rules that run whatever `select` and `ignore` say."""
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    """Values of the rules' fields, by the names of the rules."""
    per_module_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rules that are not reported for modules, by pattern of module paths such as `encoder.*`."""
    norm_limits: Mapping[str, NormLimit] = field(default_factory=dict)
    """Limits of the gradient norm by pattern of module paths. A limit applies to the parameters of
    each matching module and its children; `WHOLE_MODEL` limits the global norm.
    """


DEFAULT_SETTINGS = Settings()
