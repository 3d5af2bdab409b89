"""The numbers of events that are documented are those that runs record."""

from typing import get_args

from gradscope.recording.event_numbers import EVENT_NUMBERS, NumberName


def test_every_name_belongs_to_a_kind_of_event():
    used = {name for meanings in EVENT_NUMBERS.values() for name in meanings}
    assert used == set(get_args(NumberName))


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
        assert names <= EVENT_NUMBERS[event.kind].keys(), event.kind
