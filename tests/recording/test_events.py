"""The declared numbers of events are those that runs record, and reach readers by name."""

import math

import pytest

from gradscope.recording.event_numbers import Recorded
from gradscope.recording.events import (
    EVENT_CLASSES,
    BackwardEvent,
    ClipValueEvent,
    Event,
    StepEvent,
    event_of,
    named,
    only,
)
from gradscope.recording.records import EventRecord
from gradscope.recording.repetitions import MEASURED


def record(kind, **numbers):
    return EventRecord(
        step=2, order=1, kind=kind, seconds=0.5, site=3, numbers=tuple(numbers.items())
    )


def meanings(kind):
    """Return what each number of a kind of event means, by name."""
    return {
        name: declared.meaning
        # Numbers are declared by the bases, too.
        for base in EVENT_CLASSES[kind].__mro__
        for name, declared in vars(base).items()
        if isinstance(declared, Recorded)
    }


def test_every_kind_has_one_class_and_says_what_its_numbers_mean():
    assert len(set(EVENT_CLASSES.values())) == len(EVENT_CLASSES) > 20
    assert all(meaning for kind in EVENT_CLASSES for meaning in meanings(kind).values())


def test_numbers_that_repeated_steps_need_not_share_are_declared():
    names = {(kind, name) for kind, own in MEASURED.items() for name in own}
    assert names <= {(kind, name) for kind in MEASURED for name in meanings(kind)}


def test_an_event_has_the_numbers_of_its_record():
    event = event_of(record("step", norm=math.inf, fresh=3.0, manual=1.0), 7)
    assert isinstance(event, StepEvent)
    assert (event.position, event.step, event.seconds, event.site) == (7, 2, 0.5, 3)
    assert (event.norm, event.fresh, event.manual) == (math.inf, 3, True)


def test_a_number_that_was_not_recorded_is_none_and_a_count_is_zero():
    event = event_of(record("step"))
    assert isinstance(event, StepEvent)
    assert (event.norm, event.lr, event.fresh, event.manual) == (None, None, 0, False)


def test_a_number_of_another_kind_cannot_be_read():
    with pytest.raises(AttributeError):
        _ = event_of(record("backward", loss=1.0)).lr


def test_an_unknown_kind_is_an_event_without_names():
    event = event_of(record("of a later version", wind=1.0))
    assert type(event) is Event
    assert event.numbers == {"wind": 1.0}


def test_clips_have_the_limit_of_their_kind():
    assert event_of(record("clip-norm", max_norm=2.0)).limit == 2.0
    assert event_of(record("clip-value", clip_value=0.5)).limit == 0.5


def test_only_one_kind_is_picked():
    events = [event_of(record(kind)) for kind in ("backward", "step", "backward")]
    assert list(only(BackwardEvent, events)) == events[::2]
    assert not list(only(ClipValueEvent, events))


def test_a_run_records_documented_numbers_alone(tmp_path):
    import torch
    from torch import nn

    import gradscope

    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu")
    with gradscope.watch() as watch:
        for _ in range(6):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 3)).square().mean() / 2).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
    events = watch.report().recording.events
    assert {event.kind for event in events} >= {"backward", "clip-norm", "clip-value", "step"}
    for event in events:
        names = {name for name, _ in event.numbers}
        assert names <= meanings(event.kind).keys(), event.kind


def test_numbers_are_named_by_the_keywords_of_their_kind():
    numbers = named(StepEvent, norm=1.5, fresh=2.0, manual=0.0)
    assert numbers == {"norm": 1.5, "fresh": 2.0, "manual": 0.0}
    event = event_of(record("step", **numbers))
    assert isinstance(event, StepEvent)
    assert (event.norm, event.fresh, event.manual) == (1.5, 2, False)
