"""What is said of accumulated micro-batches, for each law and each reason that there is none."""

import io
import json
from dataclasses import replace

import jsonschema
import pytest
from rich.console import Console

from gradscope.analysis.view import ViewOptions
from gradscope.check.results import CheckResult, Run, TargetResult
from gradscope.recording.evidence.batches import (
    AccumulatedGradient,
    AccumulationRecord,
    MicroBatchRecord,
)
from gradscope.recording.finding import UNJUDGED
from gradscope.report.documents.accumulation import Accumulation, headline, off, remarks
from gradscope.report.documents.check import remarks as check_remarks
from gradscope.report.json.report import LINES, render_json, report_object
from gradscope.report.json.shape import lines_of, lines_text
from gradscope.report.render import render
from gradscope.session.report import Report
from tests.report.test_json_format import SCHEMA, valid

NAN = float("nan")


def with_micro_batches(recording, *, parts=((4, 4.0, 0.5), (4, 4.0, 0.5)), left=(1e-7,), **changes):
    """Return the recording with a comparison in it.

    Args:
        recording: Any.
        parts: Rows, count and weight of each micro-batch.
        left: By parameter: what the weights leave.
        changes: Of the comparison.
    """
    values = {
        "micro_batches": len(parts), "rows": sum(part[0] for part in parts), "repeated": (),
        "loss": 1.5, "law": "mean", "unit": None, "obstruction": None, "modules": (), "site": None,
        "apart": None, "draws": 0, "unmatched": 0, "scale": 2.0, "cosine": 1.0, "deviation": 1.0,
        "divided": 0.0, "remaining": 1e-7,
    }  # fmt: skip
    finite = [weight is None or weight == weight for *_, weight in parts]
    return replace(
        recording,
        evidence=(
            AccumulationRecord(**(values | changes)),
            *(
                MicroBatchRecord(
                    rows=rows,
                    loss=1.0,
                    is_finite=fine,
                    count=count,
                    weight=weight if fine else None,
                )
                for (rows, count, weight), fine in zip(parts, finite, strict=True)
            ),
            *(
                AccumulatedGradient(
                    parameter=position, norm=1.0, scale=2.0, deviation=1.0, remaining=one
                )
                for position, one in enumerate(left)
            ),
        ),
    )


def told(recording, **changes):
    found = Accumulation.of(with_micro_batches(recording, **changes))
    return headline(found, "x"), list(remarks(found))


def test_nothing_is_said_where_nothing_was_asked(recording):
    report = Report.from_recording(recording)
    assert Accumulation.of(recording) is None
    assert json.loads(render_json(report))["accumulation"] is None
    for form in ("markdown", "concise"):
        text = render(report, form, ViewOptions(), None)
        assert "ccumulat" not in text
    assert '"accumulation"' not in lines_text(lines_of(report_object(report), LINES))


def test_mean(recording):
    said, beside = told(recording, parts=((2, 2.0, 0.25),) * 4, scale=4.0000001)
    assert said == (
        "micro-batches x4: accumulated gradients are 4.000 times the full batch's: "
        "divide the loss by 4"
    )
    assert beside == ["worst parameter after that: `first.weight`, differs by 1e-7 of its norm"]


def test_sum(recording):
    said, beside = told(recording, law="equal", left=(1e-7, 3e-7), draws=2, repeated=("batch[2]",))
    assert said == (
        "micro-batches x2: accumulated gradients equal the full batch's: the loss needs no division"
    )
    assert beside == [
        "worst parameter: `first.bias`, differs by 3e-7 of its norm",
        "random operations such as dropout reused the full batch's draws (2 draws)",
        "without a batch dimension, repeated in each micro-batch: `batch[2]`",
    ]


def test_count(recording):
    parts = ((4, 1.0, 0.2), (4, 4.0, 0.8))
    said, beside = told(
        recording, law="counted", unit="targets", parts=parts, scale=1.5, divided=0.25
    )
    assert said == (
        "micro-batches x2: the loss is a mean over targets, and the micro-batches hold 1, 4: "
        "multiply each loss by its share of all 5"
    )
    assert beside[0] == (
        "accumulated unweighted, the gradients are 1.500 times the full batch's; divided by 2, "
        "they differ by 25%"
    )


def test_many_counts_are_cut_short(recording):
    parts = ((1, 1.0, 0.05),) * 20
    said, _ = told(recording, law="counted", unit="rows", parts=parts)
    assert "hold 1, 1, 1, 1, 1, 1, 1, 1 and 12 more: multiply" in said


def test_parameter_for_which_the_law_does_not_hold_is_named(recording):
    _, beside = told(recording, left=(1e-7, 0.75, NAN))
    assert beside == ["this does not hold for `first.bias` (differs by 75%)"]


def test_batch_norm(recording):
    said, beside = told(
        recording, law="none", obstruction="batch norm", modules=(1, 0), apart="mean", divided=0.5
    )
    assert "batch norm normalises each micro-batch by its own statistics" in said
    assert beside[:2] == [
        "batch norm layers: `first`, `Net`",
        "with batch norm in eval mode the accumulated gradients are 2 times the full batch's: "
        "divide the loss by 2",
    ]


def test_batch_norm_that_cannot_be_switched_off(recording):
    _, beside = told(recording, law="none", obstruction="batch norm", modules=(1,), apart=None)
    assert not any("eval mode" in line for line in beside)


def test_micro_batch_without_a_finite_gradient(recording):
    parts = ((4, 0.0, NAN), (4, 4.0, 0.5))
    said, beside = told(
        recording, law="none", obstruction="non-finite", unit="targets", parts=parts,
        left=(NAN,), scale=NAN, cosine=NAN, deviation=NAN, divided=NAN, remaining=NAN,
    )  # fmt: skip
    assert said == "micro-batches x2: micro-batch 1 has no finite gradient"
    assert beside == [
        "they hold 0, 4 targets, and a mean over none is NaN: sum the losses, and "
        "divide by the targets of all micro-batches"
    ]


def test_loss_that_lets_examples_meet(recording):
    said, beside = told(
        recording, law="none", obstruction="examples meet", site=0, divided=0.5, remaining=0.25,
        cosine=0.875,
    )  # fmt: skip
    assert "the loss is not a sum or mean over examples" in said
    assert beside[0] == "model.py:12 combines examples: `x = self.first(x)`"
    assert beside[2] == (
        "divided by 2, the accumulated gradients differ by 50%, cosine 0.875; "
        "the best weights leave 25%"
    )


@pytest.mark.parametrize(
    ("obstruction", "words"),
    [
        ("random numbers", "the gradients cannot be compared: some random numbers"),
        ("half precision", "the gradients cannot be compared: some are"),
        ("repeated term", "each micro-batch adds it again: divide that part by 2"),
    ],
)
def test_other_reasons(recording, obstruction, words):
    said, _ = told(recording, law="none", obstruction=obstruction)
    assert words in said


def test_worst_parameter_without_a_law_is_the_furthest_after_division(recording):
    # |sum| = 3 |whole| at a right angle: half of the sum is 1.5 beside 1.
    found = with_micro_batches(recording, law="none", obstruction="examples meet")
    gradient = AccumulatedGradient(
        parameter=2, norm=1.0, scale=0.0, deviation=10**0.5, remaining=0.5
    )
    found = replace(found, evidence=(*found.evidence[:3], gradient))
    accumulation = Accumulation.of(found)
    assert accumulation.left(gradient) == pytest.approx((1.5**2 + 1) ** 0.5)
    assert "worst parameter: `last.weight`, differs by 180%" in list(remarks(accumulation))


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0%"), (2.4e-7, "2e-7 of its norm"), (0.00123, "0.123%"), (0.5, "50%"),
     (1.99, "199%"), (2.0, "2 times its norm"), (float("inf"), "inf times its norm")],
)  # fmt: skip
def test_distances(share, words):
    assert off(share) == words


def test_json_follows_the_schema_whatever_is_missing(recording):
    report = Report.from_recording(
        with_micro_batches(recording, law="none", obstruction="examples meet", site=0, left=(NAN,))
    )
    value = valid(render_json(report))["accumulation"]
    assert value["law"] == "none"
    assert value["location"]["line"] == 12
    assert value["parts"][0] == {
        "rows": 4, "loss": 1.0, "finite": True, "count": 4.0, "weight": 0.5,
    }  # fmt: skip
    assert value["parameters"]["first.weight"]["remaining"] == "NaN"
    lines = [
        json.loads(line) for line in lines_text(lines_of(report_object(report), LINES)).splitlines()
    ]
    (line,) = [line for line in lines if line["kind"] == "accumulation"]
    assert line == {"kind": "accumulation", **value}


def test_schema_refuses_an_unknown_law(recording):
    value = json.loads(render_json(Report.from_recording(with_micro_batches(recording))))
    value["accumulation"]["law"] = "magic"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)


@pytest.mark.parametrize("width", [40, 80])
def test_text_fits_the_terminal_and_cannot_be_tricked(hostile_recording, width):
    report = Report.from_recording(
        with_micro_batches(
            hostile_recording,
            law="none",
            obstruction="examples meet",
            site=0,
            repeated=("batch['\x1b[31m']",),
            left=(0.5,) * 9,
        )
    )
    console = Console(width=width, file=io.StringIO())
    text = render(report, "full", ViewOptions(), console)
    section = text.split("Accumulation\n")[1].split("\n\n")[0]
    assert max(map(len, section.splitlines())) <= width
    assert "\x1b" not in section
    markdown = render(report, "markdown", ViewOptions(), None)
    assert "### Accumulation" in markdown
    assert all(sign.isprintable() or sign == "\n" for sign in markdown)


def test_python_shows_it(recording):
    report = Report.from_recording(with_micro_batches(recording))
    for text in (repr(report), report._repr_html_()):
        assert "2: accumulated gradients are 2.000 times" in text


def test_check_tells_it_of_each_target(recording):
    run = Run(recording=with_micro_batches(recording), verdict=UNJUDGED)
    plain = Run(recording=recording, verdict=UNJUDGED)
    targets = (
        TargetResult(name="small", runs=(run, run)),
        TargetResult(name="large", runs=(plain,)),
        TargetResult(name="broken"),
    )
    result = CheckResult(version="0", command="gradscope check", targets=targets)
    (said,) = check_remarks(result)
    assert said.startswith(
        "small, micro-batches \N{MULTIPLICATION SIGN}2: accumulated gradients are 2.000 times"
    )
