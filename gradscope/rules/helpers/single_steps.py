"""Networks with an optimizer of their own that steps once, and that are frozen from there on."""

import re
from collections.abc import Iterator
from dataclasses import replace

from gradscope.analysis.loop_windows import LoopWindow
from gradscope.analysis.losses.summarised_losses import stepped
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, StepEvent, only
from gradscope.recording.evidence.training import SourceRecord, TrainedOptimizer
from gradscope.recording.records import CapturedStep, Site
from gradscope.rules.context import RuleContext

_CAPTURES = 3
"""Number of later captured backward passes that show that a network is frozen and used."""


@dataclass(frozen=True, slots=True)
class SingleStep:
    """The only step of an optimizer, after which all that it holds is frozen."""

    optimizer: TrainedOptimizer
    step: int
    site: Site | None
    """Line of the step."""
    freeze: Site | None
    """Line near it that freezes the network; None if there is none, or several."""
    later: int
    """Number of steps that other optimizers make afterwards."""


def single_steps(context: RuleContext) -> Iterator[SingleStep]:
    """Yield the only steps of optimizers whose parameters are used on, and frozen, by the script.

    A step with several backward passes, as L-BFGS makes, may be a whole stage of a training.
    """
    recording = context.recording
    by_optimizer: dict[int | None, list[LoopWindow]] = {}
    for window in stepped(recording):
        by_optimizer.setdefault(window.optimizer, []).append(window)
    for position, made in by_optimizer.items():
        if position is None or len(made) > 1 or made[0].count > 1:
            continue
        (window,) = made
        index, optimizer = window.step.index, recording.evidence_of(TrainedOptimizer)[position]
        names = {recording.parameters[one].name for one in optimizer.parameters}
        after = [one for one in recording.captured_steps if one.step > index]
        if len(list(only(BackwardEvent, window.events))) > 1 or len(after) < _CAPTURES:
            continue
        if names and all(_is_used_frozen(captured, names) for captured in after):
            event = next(only(StepEvent, window.events), None)
            others = (
                one for key, found in by_optimizer.items() if key != position for one in found
            )
            later = sum(one.count for one in others if one.step.index > index)
            site = None if event is None else context.site(event.site)
            freeze = None if site is None else _freezing_line(context, site, names)
            yield SingleStep(optimizer, index, site, freeze, later)


def _freezing_line(context: RuleContext, site: Site, names: set[str]) -> Site | None:
    """Return the only line near the step that freezes a network, by the name that it has there."""
    roots = {name.partition(".")[0] for name in names}
    # The source names one variable; with several networks, several lines have to freeze them.
    if len(roots) > 1:
        return None
    network = rf"(?:self\.)?{re.escape(roots.pop())}\b"
    freezes = re.compile(
        # Methods of torch, helpers such as `set_requires_grad(net, False)`, and
        # `freeze_weights(net)`.
        rf"{network}\.requires_grad_\(False\)|\w\((?:{network}[^()]*, *(?:\w+=)?False)\)"
        rf"|freeze\w*\({network}"
    )
    found = [
        replace(site, line=number, source=text.strip())
        for record in context.recording.evidence_of(SourceRecord)
        if record.file == site.file and 0 <= site.line - record.first < len(record.lines)
        for number, text in enumerate(record.lines, record.first)
        if freezes.search(text)
    ]
    return found[0] if len(found) == 1 else None


def _is_used_frozen(captured: CapturedStep, names: set[str]) -> bool:
    """Return whether a captured forward runs the modules of parameters that are all frozen."""
    recording = captured.recording
    own = [one for one in recording.parameters if one.name in names]
    called = {call.module for call in recording.calls}
    is_frozen = len(own) == len(names) and not any(one.requires_grad for one in own)
    # A network that no later forward runs may have served its purpose.
    return is_frozen and all(one.module in called for one in own)
