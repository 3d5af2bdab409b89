"""A finding on a step names the samples of its batch, if they are certain."""

import hashlib
import math
import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gradscope.capture.training.batch_contents import BatchContents
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.records import Shape
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import judge
from gradscope.target.stored_batches import batch_of
from tests.nightly import some_on_push

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


def test_batches_that_are_not_certain_are_not_named(run):
    found, _ = batches_of(run, lambda: trained(lambda: ahead(shuffled())))
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


class Dictionaries(Dataset):
    """Samples as dictionaries, with lists and texts beside the tensors."""

    def __init__(self, bad=300.0):
        self.inner = Samples(bad)

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        x, y = self.inner[index]
        return {"x": x, "more": [y, y.double()], "text": str(index)}


def trained_on_dicts(make):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in make():
        nn.functional.mse_loss(model(batch["x"])[:, 0], batch["more"][0]).backward()
        optimizer.step()
        optimizer.zero_grad()


STREAM_STEP = BAD // 2
"""The step that gets the bad sample of a stream."""


def of_stream(bad):
    data = Samples(bad)
    return data.x[2 * STREAM_STEP : 2 * STREAM_STEP + 2]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("bad", [300.0, math.nan])
def test_batch_without_indices_is_described(run, workers, bad):
    class Own(IterableDataset):
        def __iter__(self):
            samples = Samples(bad)
            return (samples[index] for index in range(len(samples)))

    stream = DataLoader(Own(), batch_size=2, num_workers=workers)
    (batch,), step = batches_of(run, lambda: trained(lambda: stream))
    x = of_stream(bad)
    y = x.sum(1).clamp(-5, 5)
    both = torch.cat([x.flatten(), y])
    finite = both[both.isfinite()]
    assert step == STREAM_STEP
    assert batch.indices == ()
    assert batch.shapes == (Shape(dims=(2, 4), dtype="float32"), Shape(dims=(2,), dtype="float32"))
    assert batch.elements == 10
    assert batch.nan == int(both.isnan().sum())
    assert batch.lowest == pytest.approx(float(finite.min()))
    assert batch.highest == pytest.approx(float(finite.max()))
    digest = hashlib.blake2b(x.numpy().tobytes() + y.numpy().tobytes(), digest_size=4)
    assert batch.digest == digest.hexdigest()


def of_plain_tensors(x, y, *, every=1, prepare=lambda inputs: inputs):
    """Return a loop over rows of tensors in a drawn order, without a data loader."""

    def loop():
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for turn, rows in enumerate(order_of(x)):
            inputs = prepare(x[rows])
            nn.functional.mse_loss(model(inputs)[:, 0], y[rows]).backward()
            if turn % every == every - 1:
                optimizer.step()
                optimizer.zero_grad()

    return loop


def order_of(x):
    draw = torch.Generator().manual_seed(1)
    return torch.randperm(len(x), generator=draw).split(4)


def digest_of(tensor):
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=4).hexdigest()


@pytest.mark.nightly
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("bad", [300.0, math.nan])
def test_rows_of_a_plain_tensor_are_described(run, bad, every):
    data = Samples(bad, count=480)
    loop = of_plain_tensors(data.x, data.x.nan_to_num().sum(1).clamp(-5, 5), every=every)
    batches = [data.x[rows] for rows in order_of(data.x)]
    step = next(turn for turn, rows in enumerate(order_of(data.x)) if BAD in rows) // every
    inputs = batches[step * every : (step + 1) * every]
    named = run(loop, room=Room.of("256MB")).recording.evidence_of(BatchIdentity)
    found = [one for one in named if one.step == step]
    assert [one.digest for one in found] == list(map(digest_of, inputs))
    assert sum(one.nan for one in found) == (4 if math.isnan(bad) else 0)
    assert {(one.indices, one.loader) for one in found} == {((), "")}


def test_inputs_that_carry_a_graph_are_not_held(run):
    data = Samples()
    held = []

    def prepare(inputs):
        scaled = inputs * torch.ones(1, requires_grad=True)
        held.append(weakref.ref(scaled))
        return scaled

    found, _ = batches_of(run, of_plain_tensors(data.x, data.x.sum(1), prepare=prepare))
    assert found == []
    assert sum(one() is not None for one in held) == 0


def test_large_and_odd_tensors_are_read_as_torch_reads_them():
    draw = torch.Generator().manual_seed(0)
    large = torch.randn(3, 2**20, generator=draw).t()
    large[5, 1], large[6, 2] = math.inf, math.nan
    ids = torch.arange(10)
    held = BatchContents({"x": large, "ids": ids}, is_stored=False).read()
    finite = large[large.isfinite()]
    assert (held.elements, held.nan, held.infinite) == (large.numel(), 1, 1)
    assert (held.lowest, held.highest) == (float(finite.min()), float(finite.max()))
    whole = BatchContents([ids, ids > 3, torch.empty(0)], is_stored=False).read()
    assert (whole.elements, whole.lowest, whole.highest) == (0, None, None)
    assert BatchContents([ids, ids > 3], is_stored=False).read().highest == 9
    assert BatchContents([ids.to_sparse()], is_stored=False).read() is None
    assert BatchContents(["a"], is_stored=False).read() is None


def test_what_the_script_changed_is_not_said_of_the_batch():
    x = torch.zeros(4)
    contents = BatchContents((x,), is_stored=True)
    assert contents.read().nan == 0
    x.log_().sub_(x)
    assert contents.read() is None
    assert contents.copied(0, "") is None


@pytest.mark.nightly
@pytest.mark.parametrize(("is_shared", "most"), some_on_push([(False, 34), (True, 3)], 2))
def test_few_batches_are_held(run, is_shared, most):
    seen = []

    class Watched(Samples):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x.clone(), y

    def collate(samples):
        x, y = map(torch.stack, zip(*samples, strict=True))
        if is_shared:
            x.share_memory_()
        seen.append(weakref.ref(x))
        return x, y

    alive = []

    def batches():
        for batch in DataLoader(Watched(), batch_size=1, collate_fn=collate):
            alive.append(sum(one() is not None for one in seen))
            yield batch

    run(lambda: trained(batches), room=Room.of("256MB"))
    assert len(alive) == 160
    assert max(alive) <= most


@pytest.mark.parametrize("room", some_on_push(["256MB", "all"], 2))
def test_batches_of_trouble_are_stored(run, room):
    loader = DataLoader(Dictionaries(), batch_size=2)
    recorded = run(
        lambda: trained_on_dicts(lambda: loader), room=Room.of(room), keeps_batches=True
    ).recording
    (kept,) = [one for one in recorded.kept_batches if one.step == STREAM_STEP]
    assert len(recorded.kept_batches) < 20
    batch = batch_of(kept)
    expected = next(one for turn, one in enumerate(loader) if turn == STREAM_STEP)
    assert list(batch) == list(expected)
    assert torch.equal(batch["x"], expected["x"])
    assert torch.equal(batch["more"][1], expected["more"][1])
    assert batch["text"] == expected["text"]
    named = recorded.evidence_of(BatchIdentity)
    assert STREAM_STEP in {one.step for one in named}


def test_no_batch_is_stored_unless_that_is_wanted(run):
    loader = DataLoader(Dictionaries(), batch_size=2)
    recorded = run(lambda: trained_on_dicts(lambda: loader), room=Room.of("256MB")).recording
    assert recorded.kept_batches == ()


def test_stored_batches_of_larger_trouble_stay_within_the_room(run):
    class Growing(Dataset):
        def __len__(self):
            return 120

        def __getitem__(self, index):
            scale = 2.0 ** (max(index - 40, 0) / 2)
            return torch.full((4_000,), scale), torch.tensor(scale)

    def loop():
        model = nn.Linear(4_000, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-30)
        for x, y in DataLoader(Growing(), batch_size=4):
            nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()
            optimizer.zero_grad()

    recorded = run(loop, room=Room.of("1MB"), keeps_batches=True).recording
    assert recorded.kept_batches
    assert sum(one.size for one in recorded.kept_batches) <= 250_000
