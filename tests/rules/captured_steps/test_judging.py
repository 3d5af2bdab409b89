"""Verdicts on several captured steps, by rules that find a cause wherever a loss says so."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import pytest

from gradscope.recording.finding import Finding
from gradscope.rules.captured_steps.judging import NO_CAPTURED_STEP
from gradscope.rules.context import RuleContext
from gradscope.rules.engine import judge
from gradscope.rules.rule import Lasting, Rule
from tests.rules.accumulation.runs import Run
from tests.rules.captured_steps.captured_run import CapturedRun

FINE, BAD, WORSE, UNKNOWN = 1.0, 2.0, 3.0, 4.0
"""Losses, by what the rules below make of them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ByLoss(Rule):
    """Finds what the loss says."""

    level: ClassVar[str] = "warning"

    def skip_reason(self, context: RuleContext) -> str | None:
        step = context.first.step
        return "there is nothing to see" if step is None or step.loss == UNKNOWN else None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        loss = context.first.step.loss
        if loss in (BAD, WORSE):
            yield self.finding(
                context,
                message=f"{len(context.probes)} steps follow",
                remedy="mend it",
                site=0,
                severity="error" if loss == WORSE else "warning",
                parameters=context.run.stepped,
            )


class AtOnce(ByLoss):
    code: ClassVar[str] = "GS201"
    name: ClassVar[str] = "at-once"


class Lasts(ByLoss):
    code: ClassVar[str] = "GS105"
    name: ClassVar[str] = "lasts"
    lasts: ClassVar[Lasting] = "on"


class FromTheStart(ByLoss):
    code: ClassVar[str] = "GS106"
    name: ClassVar[str] = "from-the-start"
    lasts: ClassVar[Lasting] = "always"


@pytest.fixture(autouse=True)
def _rules(monkeypatch):
    rules = (AtOnce, Lasts, FromTheStart)
    monkeypatch.setattr("gradscope.rules.engine.RULES", rules)
    monkeypatch.setattr("gradscope.rules.selection.RULES", rules)


def verdict_of(losses, graph=lambda step: 1):
    """The verdict on a loop with these losses, each a captured step."""
    run = CapturedRun()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    for step, loss in enumerate(losses):
        run.capture_step(dict.fromkeys(weights, "gradient"), line=5, loss=loss, graph=graph(step))
        run.step(optimizer, line=6)
        run.zero(optimizer, line=7)
    return judge(run.recording())


def found(losses, code):
    """The finding of a rule, None without one."""
    return next((one for one in verdict_of(losses).findings if one.rule == code), None)


@pytest.mark.parametrize("losses", [[BAD], [FINE, BAD, FINE, FINE], [FINE, FINE, FINE, BAD]])
def test_one_look_tells_a_mistake_that_is_there_or_not(losses):
    finding = found(losses, "GS201")
    assert finding.step == losses.index(BAD)
    assert finding.count == 1


def test_a_cause_is_told_once_as_the_worst_look_shows_it():
    finding = found([FINE, BAD, WORSE, WORSE], "GS201")
    assert (finding.severity, finding.step, finding.count) == ("error", 2, 3)


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([BAD, BAD], 0),
        ([FINE, FINE, BAD, BAD], 2),
        ([FINE, BAD, FINE, BAD], 1),
        ([BAD], None),  # chance
        ([FINE, FINE, FINE, BAD], None),
        ([BAD, BAD, FINE, FINE, FINE], None),  # it went by
        ([FINE, BAD, UNKNOWN, BAD], 1),  # what cannot be judged says nothing
    ],
)
def test_what_may_be_chance_has_to_last(losses, step):
    finding = found(losses, "GS105")
    assert (None if finding is None else finding.step) == step


@pytest.mark.parametrize(("losses", "is_found"), [([BAD] * 4, True), ([FINE, BAD, BAD], False)])
def test_what_training_leads_to_has_to_be_there_from_the_start(losses, is_found):
    assert (found(losses, "GS106") is not None) == is_found


def test_what_lasts_is_as_bad_as_half_of_the_looks_say():
    assert found([BAD, BAD, BAD, WORSE], "GS105").severity == "warning"
    assert found([BAD, WORSE, WORSE, WORSE], "GS105").severity == "error"


def test_later_looks_are_probing_steps():
    assert found([BAD, FINE, FINE, FINE, FINE], "GS201").message == "3 steps follow"


def test_of_looks_that_differ_in_nothing_few_are_judged_and_all_are_counted():
    assert found([BAD] * 100, "GS105").count == 100


def test_a_look_whose_graph_is_another_is_judged_though_it_comes_late():
    """The ninth one: the first four, and the last, would be judged in any case."""
    losses = [FINE] * 8 + [BAD] + [FINE] * 8
    verdict = verdict_of(losses, graph=lambda step: 2 if step == 8 else 1)
    assert [one.step for one in verdict.findings] == [8]


def test_a_rule_that_can_judge_no_look_says_why():
    assert {one.reason for one in verdict_of([UNKNOWN] * 3).skipped} == {"there is nothing to see"}


def test_a_run_without_looks_says_so():
    run = Run()
    weights = run.model("model", 2)
    run.backward(weights, line=5)
    run.step(run.optimizer(weights), line=6)
    verdict = judge(run.recording())
    assert {(one.rule, one.reason) for one in verdict.skipped} == {
        (code, NO_CAPTURED_STEP) for code in ("GS105", "GS106", "GS201")
    }
    assert verdict.ran == ()
