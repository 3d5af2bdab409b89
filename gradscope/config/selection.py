"""Reads the settings of rules: selection, thresholds and limits."""

import dataclasses
from collections.abc import Mapping

from gradscope.config import keys
from gradscope.config.document import Table
from gradscope.errors import GradscopeError
from gradscope.options import checks
from gradscope.options.checks import Value
from gradscope.options.declaration import field_values
from gradscope.rules.catalogue import RULES
from gradscope.rules.rule import Rule
from gradscope.rules.selection import rules_named
from gradscope.rules.settings import WHOLE_MODEL, NormLimit, Settings, selectors

_LIMITS = ("max", "min")

_SELECTIONS = {"select", "ignore", "extend-select"}
"""Keys whose values select rules."""


def read_settings(table: Table, top_level: Mapping[str, Value]) -> Settings:
    """Return the settings of the rules.

    Args:
        table: The table `tool.gradscope`.
        top_level: The values of the table that are not tables themselves.
    """
    for key in _SELECTIONS & table.values.keys():
        table.value(key, _selectors_of_rules)
    modules = table.table(keys.MODULES)
    return Settings(
        **field_values(Settings, top_level),  # type: ignore[arg-type]
        thresholds=_thresholds(table.table(keys.RULES)),
        per_module_ignores={
            pattern: _texts(modules.value(pattern, _selectors_of_rules)) for pattern in modules
        },
        norm_limits=_norm_limits(table, top_level),
    )


def _selectors_of_rules(value: object) -> tuple[str, ...]:
    """Return selectors.

    Raises:
        WrongValue: It is no list of strings, or one of them selects no rule.
    """
    found = selectors(value)
    for selector in found:
        try:
            rules_named(selector)
        except GradscopeError as error:
            wrong = f"names something unknown: {error.what}"
            raise checks.WrongValue(wrong, help=error.help) from None
    return found


def with_options(
    settings: Settings,
    *,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    extend_select: tuple[str, ...] = (),
    max_grad_norm: float | None = None,
    min_grad_norm: float | None = None,
) -> Settings:
    """Return the settings with the options of the command line applied.

    Options replace configured values. A configured `ignore` stays beside a `select`, unless both
    name the same rules. A configured `extend-select` stays unless an `ignore` names its rules.

    Raises:
        GradscopeError: A selector names no rule, or no norm is within the limits.
    """
    selected = [set(rules_named(selector)) for selector in select]
    ignored = {rule for selector in ignore for rule in rules_named(selector)}
    kept_ignores = (one for one in settings.ignore if set(rules_named(one)) not in selected)
    kept_extensions = (
        one for one in settings.extend_select if not select and not ignored >= {*rules_named(one)}
    )
    return dataclasses.replace(
        settings,
        select=select or settings.select,
        ignore=ignore or tuple(kept_ignores),
        extend_select=(*kept_extensions, *extend_select),
        norm_limits=_with_limits(settings.norm_limits, max_grad_norm, min_grad_norm),
    )


def _with_limits(
    limits: Mapping[str, NormLimit], maximum: float | None, minimum: float | None
) -> Mapping[str, NormLimit]:
    given = {"max-grad-norm": maximum, "min-grad-norm": minimum}
    for key, value in given.items():
        if value is not None:
            checks.checked_option(key, value, keys.CHECK[key].check)
    if maximum is None and minimum is None:
        return limits
    known = limits.get(WHOLE_MODEL, NormLimit())
    changed = NormLimit(
        minimum=known.minimum if minimum is None else minimum,
        maximum=known.maximum if maximum is None else maximum,
    )
    if _is_empty(changed):
        raise GradscopeError(
            f"no gradient norm is at least {changed.minimum:g} and at most {changed.maximum:g}",
            help="raise --max-grad-norm or lower --min-grad-norm",
        )
    return {**limits, WHOLE_MODEL: changed}


def _is_empty(limit: NormLimit) -> bool:
    bounds = (limit.minimum, limit.maximum)
    return bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]


def _norm_limits(table: Table, top_level: Mapping[str, Value]) -> dict[str, NormLimit]:
    whole = NormLimit(**field_values(NormLimit, top_level))  # type: ignore[arg-type]
    if _is_empty(whole):
        table.fail("max-grad-norm", f"is below `min-grad-norm`, {whole.minimum:g}")
    patterns = table.table(keys.NORMS)
    limits = {pattern: _norm_limit(patterns, pattern) for pattern in patterns}
    return limits if whole == NormLimit() else {WHOLE_MODEL: whole, **limits}


def _norm_limit(patterns: Table, pattern: str) -> NormLimit:
    if pattern == WHOLE_MODEL:
        wrong, instead = (
            "does not name modules",
            "max-grad-norm and min-grad-norm apply to the whole model",
        )
        patterns.fail(pattern, wrong, help=instead)
    example = "such as { max = 10.0, min = 1e-7 }"
    if not isinstance(patterns.values[pattern], Mapping):
        patterns.fail(pattern, "has to be a table with max or min", help=example)
    table = patterns.table(pattern)
    table.check_keys(_LIMITS, "limit of a gradient norm")
    given = {key: _number(table.value(key, checks.number(0))) for key in table}
    limit = NormLimit(minimum=given.get("min"), maximum=given.get("max"))
    if not given:
        patterns.fail(pattern, "has neither max nor min", help=example)
    if _is_empty(limit):
        table.fail("max", f"is below `min`, {limit.minimum:g}")
    return limit


def _thresholds(table: Table) -> dict[str, dict[str, float]]:
    by_name = {rule.name: rule for rule in RULES}
    for key in table:
        for rule in RULES:
            if key.upper() == rule.code:
                table.fail(key, "is the code of a rule", help=f"[{table.name}.{rule.name}]")
    table.check_keys(by_name, "rule", listed="gradscope rule lists every rule")
    return {name: _thresholds_of(by_name[name], table.table(name)) for name in table}


def _thresholds_of(rule: type[Rule], table: Table) -> dict[str, float]:
    defaults = thresholds_of(rule)
    table.check_keys(defaults, f"threshold of {rule.name}")
    found = {key: _number(table.value(key, _check_of(key, defaults[key]))) for key in table}
    return {key: value for key, value in found.items() if value is not None}


def thresholds_of(rule: type[Rule]) -> dict[str, float]:
    """Return the default thresholds of a rule."""
    fields = dataclasses.fields(rule)
    return {one.name: one.default for one in fields if isinstance(one.default, int | float)}


def _check_of(name: str, default: float) -> checks.Check:
    """Return the check of a threshold; it may be negative only if the default is."""
    if name.endswith("share"):
        return checks.share
    minimum = 0 if default >= 0 else None
    if isinstance(default, int):
        return checks.whole_number(0)
    # Infinity switches a threshold off.
    return checks.number(minimum, can_be_infinite=True)


def _texts(value: Value | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _number(value: Value | None) -> float | None:
    return value if isinstance(value, int | float) else None
