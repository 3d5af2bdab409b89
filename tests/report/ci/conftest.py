"""Results of checks: a real one of a sample, and what CI makes of worse ones."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gradscope.check.options import Policy
from gradscope.check.results import (
    CheckedFinding,
    CheckResult,
    Failure,
    Run,
    TargetResult,
    target_result,
)
from gradscope.recording.finding import Consequence, Finding, RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.engine import judge
from tests.rules.inspecting import report_of_file

ROOT = Path(__file__).parents[3]
SAMPLE = "sample_models/gradient_cut.py"
HOSTILE = (
    "[/x]",
    "100%25 50%0A %",
    "a,b=c:d::e",
    "two\nlines\r\nand::error::more",
    "</script><script>alert(1)</script>",
    "<![CDATA[ ]]> &amp; \"quoted\" 'too'",
    "\x1b[31mred\x00\x07\x7f\ufffe",
    "half\udc80surrogate\ud800",
    "größe/層/🔥",
    "\u202eright to left\u2028next",
    "[link](0) `tick` |pipe| @everyone **bold**",
    "very long " * 2000,
)
NOT_FINITE = (math.nan, math.inf, -math.inf)


@cache
def recording_of_sample():
    """With the names that it has in a repository on another machine."""
    recording = report_of_file(ROOT / SAMPLE).recording
    target = replace(recording.target, name=SAMPLE, root=str(ROOT), repository=str(ROOT))
    return replace(recording, target=target)


def finding(place=0, **changes):
    values = {
        "rule": "GS201",
        "name": "gradient-cut",
        "severity": "error",
        "message": f"no gradient comes to layers.{place}.weight",
        "location": site(12 + place),
        "parameters": (f"layers.{place}.weight",),
        "modules": (f"layers.{place}",),
        "evidence": (("parameters_cut", 1), ("why", "detach"), ("held", True), ("none", None)),
        "remedy": "remove the detach()",
        "fingerprint": f"{place:016x}",
    }
    return Finding(**(values | changes))


def site(line=12, file="src/model.py"):
    return Site(file=str(ROOT / file), line=line, function="Net.forward", source="x = x.detach()")


def related(file="src/model.py", line=40, message="encoder is made here"):
    return RelatedLocation(file=str(ROOT / file), line=line, message=message)


def checked(*findings, **changes):
    values = {"run": 0, "seeds": (0,)}
    return tuple(CheckedFinding(finding=one, **(values | changes)) for one in findings)


def target_with(*items, name=SAMPLE, runs=1, **changes):
    recording = recording_of_sample()
    run = Run(recording=recording, verdict=judge(recording))
    return TargetResult(name=name, runs=(run,) * runs, findings=items, **changes)


def result_of(*targets, **changes):
    values = {"version": "0.1.0", "command": "gradscope check src/model.py", "policy": Policy()}
    return CheckResult(targets=targets, **(values | changes))


def hostile(text):
    """A result that says the text wherever a result can say something of the user's."""
    one = finding(
        message=text,
        location=Site(file=f"{ROOT}/{text}.py", line=3, function=text, source=text),
        related=(related(file=f"{text}.py", message=text), related("/elsewhere/a.py", 1, text)),
        parameters=(text, f"a.{text}"),
        modules=(text,),
        evidence=((text, text),),
        remedy=text,
        consequences=(Consequence(rule="GS103", name="non-finite-gradient", message=text),),
    )
    failure = Failure(what=text, cause=text, help=text, seed=3)
    known = checked(replace(one, fingerprint="k"), is_known=True)
    target = target_with(*checked(one, worsened=text), *known, name=text, failures=(failure,))
    return result_of(target, target_with(), stale=(text,), unmatched=(text,))


def many(count=1200):
    """Findings of several levels and rules on one line each, half of them with one fingerprint."""
    levels = ("error", "warning", "note")
    rules = (("GS201", "gradient-cut"), ("GS105", "dead-unit"), ("GS203", "unused-parameter"))
    found = (
        finding(
            place,
            severity=levels[place % 3],
            rule=rules[place % 2 + (place == 7)][0],
            name=rules[place % 2 + (place == 7)][1],
            fingerprint="same" if place % 2 else f"{place}",
        )
        for place in range(count)
    )
    return result_of(target_with(*checked(*found)))


def healthy():
    return result_of(target_with())


def real():
    recording = recording_of_sample()
    run = Run(recording=recording, verdict=judge(recording))
    return result_of(target_result(SAMPLE, [run]))


def seeds():
    items = (
        *checked(finding(0), seeds=(0, 1, 2)),
        *checked(finding(1, severity="warning"), seeds=(1,), run=1),
    )
    return result_of(
        target_with(*items, runs=3),
        target_with(*items, name="other.module:build(3)", runs=3),
        target_with(*items, name=SAMPLE, runs=3),
    )


def outside():
    """Findings whose line CI has no file of."""
    torch = "/opt/env/lib/python3.11/site-packages/torch/nn/functional.py"
    inside_of_the_environment = ROOT / ".venv/lib/python3.11/site-packages/lib/net.py"
    places = (torch, str(inside_of_the_environment), "/elsewhere/model.py", "<stdin>")
    sites = [Site(file=file, line=7, function="f", source="") for file in places]
    found = [finding(number, location=one) for number, one in enumerate([*sites, None])]
    with_related = [
        replace(one, fingerprint=f"r{one.fingerprint}", related=(related(torch), related()))
        for one in found
    ]
    return result_of(target_with(*checked(*found, *with_related)))


def failures():
    failure = Failure(
        what="the forward raised", cause="Traceback\n  line\nError: 5%", help="fix it"
    )
    seeds = (*(replace(failure, seed=seed) for seed in (0, 1)), Failure(what="it hung", seed=2))
    helped = replace(failure, help="or this")
    return result_of(
        TargetResult(name="src/model.py:Net(3)", failures=seeds),
        TargetResult(name="package.module", failures=(failure, helped)),
        TargetResult(name="/somewhere/else.py", failures=(failure,)),
        TargetResult(name="nothing at all"),
    )


SITUATIONS = {
    "no target": result_of,
    "healthy": healthy,
    "real": real,
    "many": many,
    "seeds": seeds,
    "outside": outside,
    "failures": failures,
    "not finite": lambda: result_of(
        target_with(*checked(finding(evidence=tuple(zip("abc", NOT_FINITE, strict=True)))))
    ),
    "known": lambda: result_of(target_with(*checked(finding(), is_known=True))),
    "line zero": lambda: result_of(target_with(*checked(finding(location=site(0))))),
    "no parameters": lambda: result_of(
        target_with(*checked(finding(parameters=(), modules=(), location=None)))
    ),
    "unknown rule": lambda: result_of(target_with(*checked(finding(rule="GS999", name="new")))),
    "not a gate": lambda: replace(real(), policy=None),
    "stale": lambda: result_of(target_with(), stale=("GS201 gone",) * 50, stale_fails=True),
    "many targets": lambda: result_of(
        *(target_with(*checked(finding()), name=f"t{number}.py") for number in range(25))
    ),
    **{f"hostile {place}": lambda text=text: hostile(text) for place, text in enumerate(HOSTILE)},
}


@pytest.fixture(params=SITUATIONS)
def situation(request):
    """Every kind of result."""
    return SITUATIONS[request.param]()
