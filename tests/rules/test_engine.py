"""The engine, on rules made for it that find what the test tells them to."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.engine import check_settings, judge
from gradscope.rules.rule import Rule
from gradscope.rules.selection import parsed_selectors, rules_named
from gradscope.rules.settings import Settings
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial

PLANNED: dict[str, list[dict[str, object]]] = {}
"""By code: what the rules below find, as arguments of `Rule.finding`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Rule):
    """Finds what is planned."""

    limit: float = 2.0

    def check(self, context: RuleContext) -> Iterator[Finding]:
        for arguments in PLANNED.get(self.code, ()):
            yield self.finding(
                context,
                **{
                    "message": f"{self.name} at {self.limit:g}",
                    "remedy": "mend it",
                    "site": None,
                    **arguments,
                },
            )


class LostSignal(Planned):
    code: ClassVar[str] = "GS101"
    name: ClassVar[str] = "lost-signal"
    level: ClassVar[str] = "warning"


class NotAtHome(Planned):
    code: ClassVar[str] = "GS105"
    name: ClassVar[str] = "not-at-home"
    level: ClassVar[str] = "note"

    def skip_reason(self, context: RuleContext) -> str | None:
        return None if context.has_backward else "nothing was received"


class CutWire(Planned):
    code: ClassVar[str] = "GS201"
    name: ClassVar[str] = "cut-wire"
    level: ClassVar[str] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS203", "GS1")


class DustyShelf(Planned):
    code: ClassVar[str] = "GS203"
    name: ClassVar[str] = "dusty-shelf"
    level: ClassVar[str] = "warning"
    explains: ClassVar[tuple[str, ...]] = ("GS501",)


class BurntFuse(Planned):
    code: ClassVar[str] = "GS501"
    name: ClassVar[str] = "burnt-fuse"
    level: ClassVar[str] = "error"


RULES = (LostSignal, NotAtHome, CutWire, DustyShelf, BurntFuse)
CODES = tuple(rule.code for rule in RULES)


@pytest.fixture(autouse=True)
def _rules(monkeypatch):
    monkeypatch.setattr("gradscope.rules.engine.RULES", RULES)
    monkeypatch.setattr("gradscope.rules.selection.RULES", RULES)
    yield
    PLANNED.clear()


@pytest.fixture(scope="module")
def recording():
    """Four parameters: `0.weight` (0), `0.bias`, `2.weight`, `2.bias` (3)."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    target = target_from_objects(net, (torch.randn(5, 3), torch.randn(5, 1)), "mse")
    return record(target, trial=Trial(probe_steps=0), eager=False, command="inspect")


def plan(**findings: list[dict[str, object]]) -> None:
    PLANNED.update(findings)


def ran(recording, **chosen: object) -> tuple[str, ...]:
    return judge(recording, Settings(**chosen)).ran


@pytest.mark.parametrize(
    ("selector", "codes"),
    [
        ("GS105", ("GS105",)),
        ("gs105", ("GS105",)),
        (" GS105 ", ("GS105",)),
        ("GS1", ("GS101", "GS105")),
        ("GS10", ("GS101", "GS105")),
        ("GS", CODES),
        ("ALL", CODES),
        ("flow", ("GS101", "GS105")),
        ("Reach", ("GS201", "GS203")),
        ("burnt-fuse", ("GS501",)),
    ],
)
def test_a_selector_is_a_code_a_prefix_a_family_or_a_name(selector, codes):
    assert tuple(rule.code for rule in rules_named(selector)) == codes


@pytest.mark.parametrize(
    ("selector", "meant"),
    [("GS502", "GS501"), ("cut-wir", "cut-wire"), ("Cut-Wires", "cut-wire"), ("reech", "reach")],
)
def test_what_names_no_rule_is_an_error_that_says_what_may_be_meant(selector, meant):
    with pytest.raises(GradscopeError, match=f"no rule `{selector}`: did you mean `{meant}`?"):
        rules_named(selector)


@pytest.mark.parametrize("selector", ["", "zzz", "GS42", "105"])
def test_what_is_like_no_rule_is_an_error_without_a_guess(selector):
    with pytest.raises(GradscopeError, match=f"no rule `{selector}`") as raised:
        rules_named(selector)
    assert raised.value.help == "gradscope rule lists every rule"


@pytest.mark.parametrize("selector", ["GS9", "tool"])
def test_a_family_without_rules_selects_nothing_and_is_an_error(selector):
    with pytest.raises(GradscopeError, match=f"no rule in `{selector}` yet"):
        rules_named(selector)


def test_selectors_may_stand_in_one_text_with_commas():
    assert parsed_selectors("GS1, cut-wire,,") == ("GS1", "cut-wire")
    assert parsed_selectors(["GS1,GS2", "reach"]) == ("GS1", "GS2", "reach")


def test_without_a_choice_every_rule_runs(recording):
    assert ran(recording) == CODES


@pytest.mark.parametrize(
    ("chosen", "codes"),
    [
        ({"select": ("GS1",)}, ("GS101", "GS105")),
        ({"select": ("GS1", "burnt-fuse")}, ("GS101", "GS105", "GS501")),
        ({"ignore": ("reach",)}, ("GS101", "GS105", "GS501")),
        ({"select": ("GS1",), "ignore": ("GS105",)}, ("GS101",)),
        ({"select": ("GS105",), "ignore": ("GS1",)}, ("GS105",)),
        ({"select": ("GS1",), "ignore": ("flow",)}, ()),
        ({"select": ("GS105", "ALL"), "ignore": ("GS1",)}, ("GS105", "GS201", "GS203", "GS501")),
        ({"select": ("GS1",), "extend_select": ("GS501",)}, ("GS101", "GS105", "GS501")),
        ({"ignore": ("GS501",), "extend_select": ("GS5",)}, CODES),
    ],
)
def test_of_selectors_the_most_specific_decides(recording, chosen, codes):
    assert ran(recording, **chosen) == codes


def test_what_did_not_run_is_told_with_the_reason(recording, monkeypatch):
    monkeypatch.setattr(NotAtHome, "skip_reason", lambda rule, context: "nobody opened")
    chosen = Settings(select=("GS1", "GS2"), ignore=("GS201",))
    verdict = judge(recording, chosen)
    assert {skipped.rule: skipped.reason for skipped in verdict.skipped} == {
        "GS105": "nobody opened",
        "GS201": "ignored",
        "GS501": "not selected",
    }
    assert [skipped.is_left_out for skipped in verdict.skipped] == [False, True, True]
    assert verdict.ran == ("GS101", "GS203")


def test_a_rule_that_is_left_out_is_not_even_asked(recording, monkeypatch):
    def crash(rule, context):
        raise AssertionError

    monkeypatch.setattr(NotAtHome, "skip_reason", crash)
    assert "GS105" not in ran(recording, ignore=("GS105",))


def test_a_threshold_of_the_settings_takes_the_place_of_the_default(recording):
    plan(GS101=[{}], GS501=[{}])
    verdict = judge(recording, Settings(thresholds={"lost-signal": {"limit": 7}}))
    messages = {finding.rule: finding.message for finding in verdict.findings}
    assert messages == {"GS101": "lost-signal at 7", "GS501": "burnt-fuse at 2"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(select=("cut-wier",)), "no rule `cut-wier`: did you mean `cut-wire`?"),
        (Settings(ignore=("GS77",)), "no rule `GS77`"),
        (Settings(extend_select=("nothing",)), "no rule `nothing`"),
        (Settings(per_module_ignores={"a.*": ("GS202",)}), "no rule `GS202`: did you mean"),
        (
            Settings(thresholds={"cut-wires": {"limit": 1}}),
            "no rule is named `cut-wires`: did you mean `cut-wire`?",
        ),
        (
            Settings(thresholds={"cut-wire": {"limits": 1}}),
            "rule cut-wire has no threshold `limits`: it has limit",
        ),
    ],
)
def test_settings_that_name_what_does_not_exist_are_errors(recording, settings, message):
    with pytest.raises(GradscopeError) as raised:
        judge(recording, settings)
    assert raised.value.what.startswith(message)
    with pytest.raises(GradscopeError):
        check_settings(settings)


def rules_found(recording, **chosen: object) -> list[str]:
    return [finding.rule for finding in judge(recording, Settings(**chosen)).findings]


def test_a_finding_does_not_count_where_its_rule_is_ignored(recording):
    plan(GS501=[{"parameters": [0]}, {"parameters": [2]}])
    verdict = judge(recording, Settings(per_module_ignores={"0": ("autograd",)}))
    assert [finding.parameters for finding in verdict.findings] == [("2.weight",)]


def test_a_finding_counts_as_long_as_one_of_its_modules_is_not_ignored(recording):
    plan(GS501=[{"parameters": [0, 2]}])
    assert rules_found(recording, per_module_ignores={"0": ("GS501",)}) == ["GS501"]
    both = {"0": ("GS501",), "2": ("burnt-fuse",)}
    assert rules_found(recording, per_module_ignores=both) == []


@pytest.mark.parametrize(
    ("pattern", "ignored"),
    [
        ("encoder.*", True),
        ("encoder", False),
        ("encoder*", True),
        ("*.layers.*", True),
        ("encoder.layers.?", True),
        ("encoder.layers.[0-3]", True),
        ("encoder.layers.3.*", True),
        ("decoder.*", False),
        ("*", True),
    ],
)
def test_patterns_of_modules_are_globs(recording, pattern, ignored):
    plan(GS501=[{"modules": ["encoder.layers.3"]}])
    found = rules_found(recording, per_module_ignores={pattern: ("GS501",)})
    assert found == ([] if ignored else ["GS501"])


def test_a_pattern_of_what_is_inside_a_module_means_the_module_too(recording):
    plan(GS501=[{"modules": ["encoder"]}])
    assert rules_found(recording, per_module_ignores={"encoder.*": ("GS501",)}) == []


def test_ignoring_by_module_leaves_other_rules_alone(recording):
    plan(GS501=[{"parameters": [0]}], GS203=[{"parameters": [2]}])
    assert rules_found(recording, per_module_ignores={"*": ("GS5",)}) == ["GS203"]


def test_a_finding_without_a_place_is_never_ignored_by_module(recording):
    plan(GS501=[{}])
    assert rules_found(recording, per_module_ignores={"*": ("ALL",)}) == ["GS501"]


def test_the_worst_comes_first_and_then_what_concerns_most(recording):
    plan(
        GS101=[{"parameters": [0], "severity": "note"}, {"parameters": [0], "severity": "error"}],
        GS105=[{"parameters": [1, 2], "severity": "error"}, {"severity": "warning"}],
        GS501=[{"parameters": [3]}],
    )
    ranked = [(one.severity, one.rule) for one in judge(recording).findings]
    assert ranked == [
        ("error", "GS105"),
        ("error", "GS101"),
        ("error", "GS501"),
        ("warning", "GS105"),
        ("note", "GS101"),
    ]


def test_findings_of_a_rule_that_rank_alike_keep_their_order(recording):
    plan(GS501=[{"message": text, "parameters": [0]} for text in ("b", "a", "c")])
    assert [finding.message for finding in judge(recording).findings] == ["b", "a", "c"]


def test_a_consequence_is_told_with_its_cause_and_not_beside_it(recording):
    plan(
        GS201=[{"parameters": [0, 1], "severity": "warning"}],
        GS101=[{"parameters": [0, 2], "severity": "error"}],
    )
    (cause,) = judge(recording).findings
    assert cause.rule == "GS201"
    assert [(one.rule, one.message) for one in cause.consequences] == [
        ("GS101", "lost-signal at 2")
    ]
    assert cause.parameters == ("0.weight", "0.bias", "2.weight")
    assert cause.severity == "error"


def test_consequences_have_consequences(recording):
    plan(
        GS201=[{"parameters": [0]}],
        GS203=[{"parameters": [0, 1]}],
        GS501=[{"parameters": [1]}],
    )
    (cause,) = judge(recording).findings
    assert cause.rule == "GS201"
    assert [one.rule for one in cause.consequences] == ["GS203", "GS501"]
    assert cause.parameters == ("0.weight", "0.bias")


@pytest.mark.parametrize(
    ("parameters", "swallowed"),
    [([0], True), ([0, 2], True), ([0, 2, 3], False), ([2], False), ([], True)],
)
def test_a_cause_explains_what_shares_half_of_its_parameters(recording, parameters, swallowed):
    plan(GS201=[{"parameters": [0, 1]}], GS203=[{"parameters": parameters}])
    assert ("GS203" not in rules_found(recording)) is swallowed


def test_a_cause_of_the_whole_step_explains_all_that_it_can(recording):
    plan(GS201=[{}], GS203=[{"parameters": [2]}], GS501=[{"parameters": [3]}])
    assert rules_found(recording) == ["GS201", "GS501"]


def test_each_consequence_goes_to_the_cause_it_shares_parameters_with(recording):
    plan(
        GS201=[{"parameters": [0], "message": "first"}, {"parameters": [2], "message": "second"}],
        GS203=[{"parameters": [2], "message": "of the second"}],
    )
    causes = {one.message: one.consequences for one in judge(recording).findings}
    assert [one.message for one in causes["second"]] == ["of the second"]
    assert causes["first"] == ()


def test_rules_that_explain_each_other_hide_nothing(recording, monkeypatch):
    monkeypatch.setattr(BurntFuse, "explains", ("GS203",))
    plan(GS203=[{}], GS501=[{}])
    assert rules_found(recording) == ["GS501", "GS203"]


def test_a_rule_does_not_explain_its_own_findings(recording, monkeypatch):
    monkeypatch.setattr(BurntFuse, "explains", ("GS5",))
    plan(GS501=[{"parameters": [0]}, {"parameters": [0, 1]}])
    assert rules_found(recording) == ["GS501", "GS501"]


def test_a_finding_names_the_cause_itself_where_rules_may_explain_each_other(recording):
    plan(GS203=[{"parameters": [0], "caused_by": ("GS501",)}], GS501=[{"parameters": [0]}])
    (cause,) = judge(recording).findings
    assert cause.rule == "GS501"
    assert [one.rule for one in cause.consequences] == ["GS203"]


def test_a_cause_that_a_finding_names_is_about_the_same_parameters(recording):
    plan(GS203=[{"parameters": [0], "caused_by": ("GS501",)}], GS501=[{"parameters": [2]}])
    assert rules_found(recording) == ["GS501", "GS203"]


def test_findings_that_explain_one_another_in_a_ring_are_not_lost(recording):
    plan(
        GS101=[{"caused_by": ("GS501",)}],
        GS201=[{"caused_by": ("GS101",)}],
        GS501=[{"caused_by": ("GS201",)}],
    )
    (cause,) = judge(recording).findings
    assert len(cause.consequences) == 2


def test_an_ignored_cause_leaves_its_consequences_listed(recording):
    plan(GS201=[{"parameters": [0]}], GS203=[{"parameters": [0]}])
    assert rules_found(recording, ignore=("GS201",)) == ["GS203"]


def test_the_verdict_is_the_same_each_time(recording):
    plan(
        GS101=[{"parameters": [3]}, {"parameters": [1]}],
        GS201=[{"parameters": [0]}, {"parameters": [2, 3]}],
        GS203=[{"parameters": [0, 1, 2, 3]}],
        GS501=[{}],
    )
    assert judge(recording) == judge(recording)


def test_a_rule_that_crashes_crashes(recording, monkeypatch):
    def crash(rule, context):
        raise ZeroDivisionError

    monkeypatch.setattr(LostSignal, "check", crash)
    with pytest.raises(ZeroDivisionError):
        judge(recording)


def test_a_finding_says_what_its_rule_is_and_where_its_parameters_are(recording):
    plan(GS501=[{"parameters": [0, 1, 0, 3], "evidence": {"share": 0.5, "limit": None}}])
    (finding,) = judge(recording).findings
    assert (finding.rule, finding.name, finding.severity) == ("GS501", "burnt-fuse", "error")
    assert finding.parameters == ("0.weight", "0.bias", "2.bias")
    assert finding.modules == ("0", "2")
    assert finding.evidence == (("share", 0.5), ("limit", None))


def test_a_fingerprint_depends_on_the_place_and_not_on_numbers_or_lines(recording):
    position = Site(file="/model.py", line=3, function="forward", source="x = f(x)")
    below = dataclasses.replace(position, line=position.line + 7)
    other = dataclasses.replace(position, source="x = g(x)")
    plan(
        GS501=[
            {"site": site, "evidence": {"n": n}} for n, site in enumerate((position, below, other))
        ]
    )
    first, second, third = (finding.fingerprint for finding in judge(recording).findings)
    assert first == second != third
