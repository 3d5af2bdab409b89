"""The captured backwards of a run, each with the only optimizer that steps after it."""

from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.recording.records import CapturedStep, Site
from gradscope.rules.captured_steps.training import Stepper, Training
from gradscope.rules.context import RuleContext


@dataclass(frozen=True, slots=True)
class Turn:
    """A captured backward, and the only optimizer that steps after it."""

    captured: CapturedStep
    stepper: Stepper
    reached: frozenset[str]
    """Parameters that get a gradient, be it zero."""
    trained: frozenset[str]
    """Parameters that get a gradient and are stepped."""
    cut: frozenset[str]
    """Parameters whose gradient is cut off."""


def turns_of(context: RuleContext) -> Iterator[Turn]:
    """Yield the captured backwards after each of which one optimizer steps alone."""
    training = Training(context)
    for captured in context.recording.captured_steps:
        steppers = set(training.steppers(captured))
        if len(steppers) != 1:
            continue
        (stepper,) = steppers
        recording = captured.recording
        names = {one.index: one.name for one in recording.parameters}
        stats = [(names[one.parameter], one.reach) for one in recording.parameter_stats]
        yield Turn(
            captured,
            stepper,
            frozenset(name for name, reach in stats if reach in ("gradient", "zero")),
            stepper.parameters.intersection(name for name, reach in stats if reach == "gradient"),
            frozenset(names[index] for cut in recording.cuts for index in cut.parameters),
        )


def line_of_loss(captured: CapturedStep) -> Site | None:
    """Return the line that made the loss of a captured backward."""
    recording = captured.recording
    site = recording.nodes[0].site if recording.nodes else None
    return None if site is None else recording.sites[site]


@dataclass(frozen=True, slots=True)
class Bystander:
    """Parameters that their optimizer never steps, because its loss does not use them."""

    own: Turn
    """A turn of their optimizer."""
    other: Turn
    """A turn whose loss gives them a gradient, and whose optimizer does not hold them."""
    names: frozenset[str]


def bystanders(context: RuleContext) -> Iterator[Bystander]:
    """Yield what only another optimizer's loss gives a gradient, which its own never does.

    In each turn of its optimizer it gets none, and not because of a cut. No other optimizer holds
    it.
    """
    turns = list(turns_of(context))
    for stepper in dict.fromkeys(one.stepper for one in turns):
        own = [one for one in turns if one.stepper == stepper]
        others = [one for one in turns if one.stepper != stepper]
        # An optimizer of which nothing gets a gradient has another mistake.
        if len(own) < _LEAST or not any(one.trained for one in own):
            continue
        apart = stepper.parameters.difference(*(one.stepper.parameters for one in others))
        idle = apart.difference(*(one.reached | _kept_out(one) for one in own))
        for other in others:
            names = idle & other.reached
            if names:
                yield Bystander(own[0], other, names)
                break


def _kept_out(turn: Turn) -> frozenset[str]:
    """Return the parameters that a cut keeps from the loss, and not only from a log."""
    recording = turn.captured.recording
    names = {one.index: one.name for one in recording.parameters}
    return frozenset(
        names[index] for cut in recording.cuts if cut.joins for index in cut.parameters
    )


_LEAST = 2
"""Number of captured turns of an optimizer from which on it is known what its loss uses."""
