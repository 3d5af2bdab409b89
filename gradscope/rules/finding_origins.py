"""Where findings come from: the batch of their step, and the user's line about a trainer."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gradscope.phrasing import short
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.evidence.training import ArgumentKind, LibraryCall, TrainerArgument
from gradscope.recording.finding import Finding
from gradscope.recording.records import Recording, Site
from gradscope.rules.context import RuleContext

_OF_BATCHES = frozenset({"GS103", "GS104", "GS107"})
"""Codes of rules whose findings may come from single samples."""

_OF_BROKEN_NUMBERS = frozenset({"GS103", "GS104"})
"""Codes of rules whose findings come from a batch that holds NaN or infinity."""

_SAMPLES_SHOWN, _SHAPES_SHOWN = 8, 4

_CLEAN = "clean the data: torch.nan_to_num, or drop rows for which torch.isfinite is false"

_PLACES: Mapping[ArgumentKind, str] = {
    "accumulation": "the trainer accumulates as it is told here",
    "learning rate": "the trainer gets its learning rate here",
    "precision": "the trainer gets its precision here",
}


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


def at_users_lines(
    findings: Iterable[Finding], context: RuleContext, kinds: Mapping[str, ArgumentKind | None]
) -> Iterator[Finding]:
    """Yield findings with the lines of the user's code, where a trainer runs the loop.

    Args:
        findings: Findings.
        context: What was judged.
        kinds: By code of a rule: what a trainer's argument sets to cause it.
    """
    recording = context.recording
    callers = Counter(one.caller for one in recording.evidence_of(LibraryCall))
    if not callers:
        yield from findings
        return
    sites = recording.sites
    arguments = {one.kind: sites[one.site] for one in recording.evidence_of(TrainerArgument)}
    calls = {sites[index] for index in callers}
    # A script may also call the trainer for a validation. The call that leads to most of the
    # library's lines is the one that trains.
    usual = sites[callers.most_common(1)[0][0]]
    for finding in findings:
        kind = kinds.get(finding.rule)
        argument = None if kind is None else arguments.get(kind)
        yield _with_argument(_moved(finding, context, usual), argument, calls, context, kind)


def _moved(finding: Finding, context: RuleContext, call: Site) -> Finding:
    """Return a finding that points at the call of the trainer instead of a package's line."""
    location = finding.location
    if location is None or not location.is_installed:
        return finding
    inside = context.related(location, "in the library, here", is_inside=True)
    return replace(finding, location=call, related=(*finding.related, *filter(None, [inside])))


def _with_argument(
    finding: Finding,
    argument: Site | None,
    calls: set[Site],
    context: RuleContext,
    kind: ArgumentKind | None,
) -> Finding:
    """Return a finding that points at an argument, or at code of the user's and this argument."""
    location = finding.location
    if argument is None or kind is None or location is None or location == argument:
        return finding
    # The trainer's call says nothing of the mistake, so the argument takes its place. Code of the
    # user's stays the location.
    if location in calls:
        other = context.related(location, "the trainer is called here")
        related = (*filter(None, [other]), *finding.related)
        return replace(finding, location=argument, related=related)
    other = context.related(argument, _PLACES[kind])
    return replace(finding, related=(*finding.related, *filter(None, [other])))
