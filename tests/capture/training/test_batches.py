"""A finding on a step names the samples of its batch, if they are certain."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import judge

BAD = 77
"""The sample that makes the loss jump."""


class Samples(Dataset):
    def __init__(self, bad=300.0, count=160):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 4, generator=draw)
        self.x[BAD] = bad
        self.asked = []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.asked.append(index)
        return self.x[index], self.x[index].sum().clamp(-5, 5)


class Stream(IterableDataset):
    def __iter__(self):
        samples = Samples()
        return (samples[index] for index in range(len(samples)))


def trained(make, *, epochs=1, every=1):
    """Train on what `make` returns in each epoch; step after every so many batches."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(epochs):
        train_loader = make()
        for turn, (x, y) in enumerate(train_loader):
            nn.functional.mse_loss(model(x)[:, 0], y).backward()
            if turn % every == every - 1:
                optimizer.step()
                optimizer.zero_grad()


def batches_of(run, loop, **options):
    """Return the recorded batches of the step with the largest loss, and its number."""
    recorded = run(loop, room=Room.of("256MB"), **options).recording
    steps = [step for step in recorded.steps if step.loss is not None]
    worst = max(steps, key=lambda step: math.inf if math.isnan(step.loss) else step.loss).index
    found = [one for one in recorded.evidence_of(BatchIdentity) if one.step == worst]
    return found, worst


def shuffled(**options):
    draw = torch.Generator().manual_seed(1)
    return DataLoader(Samples(), batch_size=4, shuffle=True, generator=draw, **options)


@pytest.mark.parametrize("budget", [None, 1e-12])
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_a_spike_are_named(run, workers, budget):
    train_loader = shuffled(num_workers=workers)
    options = {} if budget is None else {"budget": budget, "every": 1}
    (batch,), _ = batches_of(run, lambda: trained(lambda: train_loader), **options)
    assert batch.loader == "train_loader"
    assert len(batch.indices) == 4
    assert BAD in batch.indices


def test_persistent_workers_start_each_epoch_anew(run):
    loader = shuffled(num_workers=2, persistent_workers=True)

    def batches():
        for turn, batch in enumerate(loader):
            if turn == 30:  # leaves batches that the workers have prepared
                return
            yield batch

    found, _ = batches_of(run, lambda: trained(batches, epochs=2))
    assert not found or BAD in found[0].indices


def test_micro_batches_are_all_named(run):
    loader = shuffled()
    loop = run(lambda: trained(lambda: loader, every=2, epochs=2), room=Room.of("256MB"))
    named = loop.recording.evidence_of(BatchIdentity)
    (step,) = {one.step for one in named if BAD in one.indices}
    assert sum(one.step == step for one in named) == 2


def ahead(loader):
    """Fetch each batch before the one before it is used."""
    batches = iter(loader)
    before = next(batches)
    for following in batches:
        yield before
        before = following
    yield before


@pytest.mark.parametrize("kind", ["fetched ahead", "stream"])
def test_samples_that_are_not_certain_are_not_named(run, kind):
    makes = {
        "fetched ahead": lambda: ahead(shuffled()),
        "stream": lambda: DataLoader(Stream(), batch_size=4),
    }
    found, _ = batches_of(run, lambda: trained(makes[kind]))
    assert found == []


def test_validation_between_steps_is_another_loader(run):
    train_loader = shuffled()
    validation = DataLoader(Samples(bad=0.0), batch_size=4)

    def batches():
        for turn, batch in enumerate(train_loader):
            if turn % 10 == 5:
                with torch.no_grad():
                    list(validation)
            yield batch

    (batch,), _ = batches_of(run, lambda: trained(batches))
    assert BAD in batch.indices


def test_single_samples_and_samplers_of_the_script(run):
    def collated(samples):
        x, y = zip(*samples, strict=True)
        return torch.stack(x), torch.stack(y)

    order = [[index, (index + 80) % 160] for index in range(40, 120)]
    loader = DataLoader(Samples(), batch_sampler=order, collate_fn=collated)
    (batch,), step = batches_of(run, lambda: trained(lambda: loader))
    assert batch.indices == tuple(order[step])


def test_nothing_is_drawn_or_fetched_for_it(run):
    def loop():
        torch.manual_seed(3)
        loader = DataLoader(Samples(), batch_size=4, shuffle=True)
        trained(lambda: loader, epochs=2)
        return loader.dataset.asked, torch.rand(1)

    plain = loop()
    watched = []
    run(lambda: watched.extend(loop()), room=Room.of("256MB"))
    assert watched[0] == plain[0]
    assert torch.equal(watched[1], plain[1])


def test_finding_names_the_samples(run):
    loader = shuffled()
    loader.dataset.x[BAD] = math.nan
    recording = run(lambda: trained(lambda: loader), room=Room.of("256MB")).recording
    told = [
        text
        for finding in judge(recording).findings
        for name, text in finding.evidence
        if name == "batch"
    ]
    assert told
    assert all(text.startswith("samples ") and text.endswith(" of train_loader") for text in told)
    assert f" {BAD}" in told[0]
