"""What accumulating micro-batches gives, in every format."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.evidence.batches import (
    AccumulatedGradient,
    AccumulationLaw,
    AccumulationRecord,
    MicroBatchRecord,
)
from gradscope.recording.records import Recording
from gradscope.report.document import Points, Section, Word, section
from gradscope.report.number_format import number
from gradscope.report.page import UNICODE

TITLE = "Accumulation"

_SHOWN = 8
"""Maximum number of counts, weights or names that are spelled out."""

_OFF = 0.02
"""Remaining deviation above which a parameter is named, relative to its norm."""

_APART: dict[AccumulationLaw, str] = {
    "equal": "the accumulated gradients equal the full batch's",
    "mean": "the accumulated gradients are {count} times the full batch's: divide the loss by "
    "{count}",
    "counted": "the micro-batches hold unequal counts of what the loss averages: weight them by it",
    "fitted": "the loss weights the micro-batches unequally",
    "none": "the accumulated gradients still differ from the full batch's",
}
"""Laws with batch normalization and randomness disabled, as phrases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """The records of a comparison of micro-batches with the full batch."""

    recording: Recording
    record: AccumulationRecord
    parts: tuple[MicroBatchRecord, ...]
    parameters: tuple[AccumulatedGradient, ...]

    @classmethod
    def of(cls, recording: Recording) -> Self | None:
        """Return the accumulation in a recording; None without one."""
        for record in recording.evidence_of(AccumulationRecord):
            return cls(
                recording=recording,
                record=record,
                parts=tuple(recording.evidence_of(MicroBatchRecord)),
                parameters=tuple(recording.evidence_of(AccumulatedGradient)),
            )
        return None

    @property
    def is_sound(self) -> bool:
        """Return whether weights exist with which the gradients of all parameters add up."""
        return self.record.law != "none" and not self.exceptions

    @property
    def worst(self) -> AccumulatedGradient | None:
        """Return the parameter with the largest deviation; None if none is compared."""
        known = [one for one in self.parameters if not math.isnan(self.left(one))]
        return max(known, key=self.left, default=None)

    def left(self, gradient: AccumulatedGradient) -> float:
        """Return a parameter's deviation with the law's weights, or divided by K without a law."""
        record = self.record
        if record.law != "none":
            return gradient.remaining
        if record.obstruction == "repeated term":
            return gradient.deviation
        # (|sum / K - whole| / |whole|)**2, derived from |sum - whole|**2.
        square = gradient.deviation**2 - 1 + 2 * gradient.scale
        share = 1 / record.micro_batches
        # Rounding may leave less than zero.
        return math.sqrt(max(share**2 * square - 2 * share * gradient.scale + 1, 0.0))

    @property
    def exceptions(self) -> tuple[AccumulatedGradient, ...]:
        """Return the parameters that do not follow the law of all others, the worst first."""
        if self.record.law == "none":
            return ()
        found = [one for one in self.parameters if one.remaining > _OFF]
        return tuple(sorted(found, key=lambda one: -one.remaining))

    def name(self, gradient: AccumulatedGradient) -> str:
        """Return a parameter's fully qualified name."""
        return self.recording.parameters[gradient.parameter].name


def headline(found: Accumulation, times: str) -> str:
    """Return how the gradients add up, and what to do about it."""
    return f"micro-batches {times}{found.record.micro_batches}: {_verdict(found)}"


def _verdict(found: Accumulation) -> str:
    record = found.record
    match record.law:
        case "equal":
            return "accumulated gradients equal the full batch's: the loss needs no division"
        case "mean":
            return (
                f"accumulated gradients are {record.scale:.3f} times the full batch's: "
                f"divide the loss by {record.micro_batches}"
            )
        case "counted":
            total = short(sum(part.count for part in found.parts), 6)
            held = _listed([short(part.count, 6) for part in found.parts])
            return (
                f"the loss is a mean over {record.unit}, and the micro-batches hold {held}: "
                f"multiply each loss by its share of all {total}"
            )
        case "fitted":
            weights = _listed([number(part.weight) for part in found.parts])
            return (
                f"accumulated gradients need the weights {weights}, which no count explains: the "
                "loss is a mean over something else, or a function of a mean, such as its root"
            )
        case "none":
            return _failure(found)


def _failure(found: Accumulation) -> str:
    record = found.record
    match record.obstruction:
        case "batch norm":
            return (
                "batch norm normalises each micro-batch by its own statistics: no loss weights "
                "give the full batch's gradients"
            )
        case "random numbers":
            return (
                "the gradients cannot be compared: some random numbers of the full batch's forward "
                "could not be reused for the micro-batches"
            )
        case "non-finite":
            positions = [
                str(position) for position, one in enumerate(found.parts, 1) if not one.is_finite
            ]
            plural = "es" if len(positions) > 1 else ""
            have = "have" if len(positions) > 1 else "has"
            return f"micro-batch{plural} {_listed(positions)} {have} no finite gradient"
        case "repeated term":
            return (
                "part of the loss does not depend on the batch, such as a penalty on the weights, "
                f"and each micro-batch adds it again: divide that part by {record.micro_batches}"
            )
        case "half precision":
            return (
                "the gradients cannot be compared: some are computed in half precision, where "
                "rounding may hide the full batch's"
            )
        case _:
            return (
                "the loss is not a sum or mean over examples: no micro-batch weights give the full "
                "batch's gradients"
            )


def remarks(found: Accumulation) -> Iterator[str]:
    """Yield what else is worth telling, the weightiest first."""
    yield from _reasons(found)
    yield from _numbers(found)
    record = found.record
    if record.draws and not record.unmatched:
        draws = counted(record.draws, "draw")
        yield f"random operations such as dropout reused the full batch's draws ({draws})"
    if record.repeated:
        yield f"without a batch dimension, repeated in each micro-batch: {_named(record.repeated)}"


def _reasons(found: Accumulation) -> Iterator[str]:
    record, recording = found.record, found.recording
    if record.site is not None:
        site = recording.sites[record.site]
        position = shown_site(site, recording.target.root)
        yield f"{position} combines examples: `{site.source}`"
    if record.obstruction == "examples meet":
        yield (
            "if the loss compares examples with each other, do not split the batch, or cache its "
            "outputs (GradCache)"
        )
    if record.obstruction == "non-finite" and record.unit is not None:
        held = _listed([short(part.count, 6) for part in found.parts])
        yield (
            f"they hold {held} {record.unit}, and a mean over none is NaN: sum the losses, "
            f"and divide by the {record.unit} of all micro-batches"
        )
    if record.obstruction == "batch norm":
        paths = [recording.modules[position].path for position in record.modules]
        yield f"batch norm layers: {_named(path or recording.target.model for path in paths)}"
    if record.apart is not None and record.obstruction in ("batch norm", "random numbers"):
        calm = "with batch norm" if record.obstruction == "batch norm" else "with the model"
        yield f"{calm} in eval mode {_APART[record.apart].format(count=record.micro_batches)}"
    if found.exceptions:
        names = [
            f"`{found.name(one)}` (differs by {off(one.remaining)})" for one in found.exceptions
        ]
        yield f"this does not hold for {_listed(names)}"


def _numbers(found: Accumulation) -> Iterator[str]:
    record, worst = found.record, found.worst
    if record.obstruction == "non-finite":
        return
    if record.law in ("counted", "fitted"):
        yield (
            f"accumulated unweighted, the gradients are {record.scale:.3f} times the full "
            f"batch's; divided by {record.micro_batches}, they differ by {off(record.divided)}"
        )
    if record.obstruction == "repeated term":
        yield f"unweighted, the accumulated gradients differ by {off(record.deviation)}"
    elif record.law == "none":
        text = (
            f"divided by {record.micro_batches}, the accumulated gradients differ by "
            f"{off(record.divided)}, cosine {record.cosine:.3f}"
        )
        best = f"; the best weights leave {off(record.remaining)}"
        yield text + (best if record.remaining > _OFF else "")
    if worst is not None and not found.exceptions:
        after = "" if record.law in ("equal", "none") else " after that"
        yield f"worst parameter{after}: `{found.name(worst)}`, differs by {off(found.left(worst))}"


def off(share: float) -> str:
    """Return a gradient's deviation as text: `42%`, `2e-7 of its norm`, `3.1 times its norm`."""
    if share >= 2:
        return f"{number(share)} times its norm"
    if share >= 1e-3:
        return f"{100 * share:.3g}%"
    # Python writes two digits of an exponent: 2e-07.
    digits, _, power = f"{share:.0e}".partition("e")
    return f"{digits}e{int(power)} of its norm" if share else "0%"


def _named(names: Iterable[str]) -> str:
    return _listed([f"`{name}`" for name in names])


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def accumulation_sections(report: Report) -> tuple[Section, ...]:
    """Return how the gradients of micro-batches compare with the full batch's."""
    found = Accumulation.of(report.recording)
    if found is None:
        return ()
    head = Word(headline(found, UNICODE.times), "plain" if found.is_sound else "notable")
    return section(TITLE, [Points((head, *remarks(found)))])
