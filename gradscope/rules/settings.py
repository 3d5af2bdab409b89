"""What the user has set for the rules: selection, thresholds and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Thresholds = Mapping[str, float]


WHOLE_MODEL = ""
"""The pattern of `Settings.norm_limits` that means all parameters together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLimit:
    """Between which numbers a gradient norm has to lie, both of them allowed."""

    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user chose; selectors are codes, prefixes of codes, families and names of rules."""

    select: tuple[str, ...] = ()
    """Only these; empty for all."""
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    """These too, whatever `select` and `ignore` say."""
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    """By rule's name: values of its fields."""
    per_module_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pattern of module paths, as `encoder.*`: what is not reported of them."""

    norm_limits: Mapping[str, NormLimit] = field(default_factory=dict)
    """By pattern of module paths: limits of the gradient norm over the parameters of each module
    that it matches, those below it counted; `WHOLE_MODEL` for the global norm."""


DEFAULT_SETTINGS = Settings()
