"""Finds the batch that a finding on a step of a run comes from."""

from collections.abc import Sequence
from dataclasses import replace

from gradscope.phrasing import short
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.finding import Finding
from gradscope.recording.records import Recording

_OF_BATCHES = frozenset({"GS103", "GS104", "GS107"})
"""Codes of rules whose findings may come from single samples."""

_OF_BROKEN_NUMBERS = frozenset({"GS103", "GS104"})
"""Codes of rules whose findings come from a batch that holds NaN or infinity."""

_SAMPLES_SHOWN, _SHAPES_SHOWN = 8, 4

_CLEAN = "clean the data: torch.nan_to_num, or drop rows for which torch.isfinite is false"


class StepBatches:
    """The batches that a recording knows, by step."""

    def __init__(self, recording: Recording) -> None:
        self._by_step: dict[int | None, list[BatchIdentity]] = {}
        for one in recording.evidence_of(BatchIdentity):
            self._by_step.setdefault(one.step, []).append(one)

    def named(self, finding: Finding) -> Finding:
        """Return a finding with the batches of its step, if it depends on them."""
        found = self._by_step.get(finding.step, ())
        if not found or finding.rule not in _OF_BATCHES:
            return finding
        numbers = range_text(found)
        evidence = (
            *finding.evidence,
            ("batch", "; ".join(map(batch_text, found))),
            *([("batch_numbers", numbers)] if numbers else []),
        )
        finding = replace(finding, evidence=evidence)
        broken = broken_text(found)
        if not broken or finding.rule not in _OF_BROKEN_NUMBERS:
            return finding
        return replace(
            finding, message=f"{finding.message}; the batch already held {broken}", remedy=_CLEAN
        )


def batch_text(batch: BatchIdentity) -> str:
    """Return which samples a batch has, as `samples 8812, 91 of train_loader`.

    Without them, it says what its tensors hold: `batch of 32x3x8x8 and 32 from stream, min -2.1,
    max 1.2e+09, digest ab12cd34`.
    """
    if not batch.indices:
        name = f" from {batch.loader}" if batch.loader else ""
        numbers = range_text([batch])
        return f"batch of {_shapes(batch)}{name}{numbers and f', {numbers}'}, digest {batch.digest}"
    shown = ", ".join(map(str, batch.indices[:_SAMPLES_SHOWN]))
    more = ", ..." if len(batch.indices) > _SAMPLES_SHOWN else ""
    noun = "sample" if len(batch.indices) == 1 else "samples"
    return f"{noun} {shown}{more} of {batch.loader or 'the data loader'}"


def _shapes(batch: BatchIdentity) -> str:
    texts = ["x".join(map(str, one.dims)) or "1 number" for one in batch.shapes[:_SHAPES_SHOWN]]
    hidden = len(batch.shapes) - len(texts)
    return " and ".join((*texts, *([f"{hidden} more"] if hidden else [])))


def range_text(batches: Sequence[BatchIdentity]) -> str:
    """Return the smallest and largest finite number of some batches; empty if it is unknown."""
    lowest = [one.lowest for one in batches if one.lowest is not None]
    highest = [one.highest for one in batches if one.highest is not None]
    if not lowest or not highest:
        return ""
    return f"min {short(min(lowest))}, max {short(max(highest))}"


def broken_text(batches: Sequence[BatchIdentity]) -> str:
    """Return how many numbers of some batches are not finite; empty if all are."""
    nan, infinite = sum(one.nan for one in batches), sum(one.infinite for one in batches)
    names = [name for name, count in (("NaN", nan), ("infinity", infinite)) if count]
    elements = sum(one.elements for one in batches)
    return f"{' and '.join(names)} in {nan + infinite:,} of {elements:,} numbers" if names else ""
