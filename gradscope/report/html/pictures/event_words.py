"""What the events of a step are called, and which of their numbers are told."""

from collections.abc import Iterator, Mapping

from gradscope.recording.records import EventRecord

_WORDS = {"scaler-step": "scaler.step"}
"""Of events that say nothing beside their neighbours, and have no word in a short picture."""

_TOLD: Mapping[str, tuple[tuple[str, str, float | None], ...]] = {
    "backward": (
        ("loss", "loss", None),
        ("divided", "divided by", 1.0),
        ("reached", "parameters reached", None),
        ("added", "added to what no step had used", 0.0),
        ("stale", "added to what a step had used", 0.0),
    ),
    "grad": (("reached", "reached", None),),
    "zero": (
        ("parameters", "gradients", None),
        ("unspent", "not used by any step", 0.0),
    ),
    "unscale": (("scale", "scale", None),),
    "clip-norm": (
        ("norm", "norm", None),
        ("max_norm", "limit", None),
        ("parameters", "parameters", None),
    ),
    "clip-value": (
        ("norm", "norm", None),
        ("clip_value", "limit", None),
        ("parameters", "parameters", None),
    ),
    "step": (
        ("norm", "gradient norm", None),
        ("lr", "learning rate", None),
        ("with_gradient", "parameters with gradient", None),
        ("none", "without", 0.0),
        ("stale", "used before", 0.0),
        ("backwards", "backwards", 1.0),
        ("nonfinite", "non-finite", 0.0),
    ),
    "scaler-update": (("scale_before", "scale before", None), ("scale_after", "after", None)),
    "scheduler": (("lr_before", "rate before", None), ("lr_after", "after", None)),
}
"""By kind: names of numbers, what they are called, and the number that goes without saying."""

_NOTED: Mapping[str, Mapping[str, str]] = {
    "backward": {"scaled": "scaled", "retain": "retain_graph", "create": "create_graph"},
    "zero": {"set_to_none": "set to None"},
    "clip-norm": {"scaled": "still scaled"},
    "clip-value": {"scaled": "still scaled"},
    "step": {"manual": "by hand"},
    "scaler-step": {"skipped": "skipped", "found_inf": "found NaN or inf"},
}
"""By kind: what is said where a number is not 0."""


def event_word(event: EventRecord, word: str) -> str:
    """Return what an event is called, given its word in a short picture."""
    if event.kind == "backward" and not {"rows", "forward"}.isdisjoint(dict(event.numbers)):
        return f"forward, {word}"
    return word or _WORDS.get(event.kind, event.kind)


def event_numbers(event: EventRecord) -> Iterator[tuple[str, float]]:
    """Yield the numbers that are told of an event, each after what it is called."""
    numbers = dict(event.numbers)
    for name, called, unsaid in _TOLD.get(event.kind, ()):
        if name in numbers and numbers[name] != unsaid:
            yield called, numbers[name]


def event_notes(event: EventRecord) -> Iterator[str]:
    """Yield what is said of an event without a number."""
    numbers = dict(event.numbers)
    for name, words in _NOTED.get(event.kind, {}).items():
        # A step of an optimizer is noticed like those by hand where compiled code makes it.
        if numbers.get(name) and not (name == "manual" and event.optimizer is not None):
            yield words
