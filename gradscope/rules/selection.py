"""Which rules run, with which thresholds and limits."""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache

from gradscope.errors import GradscopeError
from gradscope.recording.finding import IGNORED, NOT_SELECTED, SkippedRule, Verdict
from gradscope.rules.catalogue import RULES
from gradscope.rules.rule import FAMILIES, Rule, family_of
from gradscope.rules.settings import Settings


def rules_named(selector: str) -> tuple[type[Rule], ...]:
    """Return the rules of a code, prefix of codes, family or name.

    Raises:
        GradscopeError: There is none.
    """
    wanted = selector.strip()
    code = wanted.upper()
    if found := _named(wanted, RULES):
        return found
    if code in FAMILIES or wanted.lower() in FAMILIES.values():
        raise GradscopeError(
            f"there is no rule in `{selector}` yet", help="gradscope rule lists every rule"
        )
    names = [*(rule.code for rule in RULES), *(rule.name for rule in RULES), *FAMILIES.values()]
    # Codes are upper case and names lower case, and similarity depends on the case.
    meant = suggestion(wanted, names) or suggestion(code, names)
    raise GradscopeError(f"no rule `{selector}`{meant}", help="gradscope rule lists every rule")


@lru_cache
def _named(wanted: str, rules: tuple[type[Rule], ...]) -> tuple[type[Rule], ...]:
    """Return those of the rules that a selector names; it is asked for each rule anew."""
    code = wanted.upper()
    if code == "ALL":
        return rules
    return tuple(
        rule
        for rule in rules
        if (code.startswith("GS") and rule.code.startswith(code))
        or wanted.lower() in (rule.name, family_of(rule.code))
    )


def suggestion(given: str, names: Iterable[str]) -> str:
    """Return the end of a message on an unknown name; empty without a similar name."""
    known = list(names)
    read = given.upper().translate(str.maketrans("OIL", "011"))  # as in GS7O2
    close = [read] if read in known else get_close_matches(given, known, n=1)
    return f": did you mean `{close[0]}`?" if close else ""


def parsed_selectors(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return selectors from texts that hold several of them, with commas between."""
    texts = (given,) if isinstance(given, str) else given
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(part for part in parts if part)


def reason_left_out(rule: type[Rule], settings: Settings) -> str | None:
    """Return why the settings leave a rule out, None where they do not.

    Of selectors that name a rule, the most specific decides, as in `--select GS1 --ignore GS105`;
    between equals it is left out.

    Raises:
        GradscopeError: A selector names no rule.
    """
    if _specificity(rule, settings.extend_select) > 0:
        return None
    ignored = _specificity(rule, settings.ignore)
    if not settings.select:
        return IGNORED if ignored else None
    selected = _specificity(rule, settings.select)
    if not selected:
        return NOT_SELECTED
    return IGNORED if ignored >= selected else None


def narrowed(verdict: Verdict, settings: Settings) -> Verdict:
    """Return what a verdict of all rules says about the rules that the settings select.

    A finding of another rule stays if it explains one of theirs: alone, theirs would name the
    symptom as the cause. Limits of the user's own are judged in any case.
    """
    reasons = {
        rule.code: None if _is_of_user(rule) else reason_left_out(rule, settings) for rule in RULES
    }
    kept = tuple(
        one
        for one in verdict.findings
        if any(reasons[code] is None for code in (one.rule, *(c.rule for c in one.consequences)))
    )
    causes = {one.rule for one in kept}
    left_out = [code for code, why in reasons.items() if why is not None and code not in causes]
    return replace(
        verdict,
        findings=kept,
        ran=tuple(code for code in verdict.ran if code not in left_out),
        skipped=(
            *(one for one in verdict.skipped if one.rule not in left_out),
            *(SkippedRule(rule=code, reason=reasons[code] or "") for code in left_out),
        ),
    )


def _is_of_user(rule: type[Rule]) -> bool:
    return rule.is_asked_for is not Rule.is_asked_for


def is_named(rule: type[Rule], settings: Settings) -> bool:
    """Return whether the settings ask for a rule, rather than for all that fit."""
    return _specificity(rule, (*settings.select, *settings.extend_select)) > 0


def _specificity(rule: type[Rule], selectors: Iterable[str]) -> int:
    """Return how narrowly the selectors name a rule; 0 where they do not."""
    # The fewer rules a selector names, the more specific it is.
    counts = [len(named) for s in selectors if rule in (named := rules_named(s))]
    return len(RULES) + 1 - min(counts) if counts else 0
