"""Edits for findings of jobs, whose ranks are not run here."""

from textwrap import dedent

import pytest

from gradscope.fixes.proposing import possible_edits
from gradscope.recording.finding import Finding, RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.ranks.samplers import SameOrderEveryEpoch
from gradscope.rules.ranks.synchronisation import NeedlessSynchronisation, UnsynchronisedGradient
from gradscope.source_edits.text_edits import applied
from tests.source_edits.test_source_file import files_that_ran


def changed(tmp_path, rule, text):
    """Return the edits of a finding at the line `# <-` with related lines `# also`."""
    path = str(tmp_path / "train.py")
    text = dedent(text).lstrip("\n")
    (tmp_path / "train.py").write_text(text)
    lines = dict(enumerate(text.splitlines(), 1))
    (at,) = (number for number, line in lines.items() if line.endswith("# <-"))
    location = Site(file=path, line=at, function="main", source=lines[at].strip())
    related = tuple(
        RelatedLocation(file=path, line=number, message="")
        for number, line in lines.items()
        if line.endswith("# also")
    )
    finding = Finding(
        rule="GS800", name="", severity="error", message="", remedy="", location=location,
        related=related, parameters=(), modules=(), evidence=(), count=1, fingerprint="",
    )  # fmt: skip
    return [
        (edit.start.line, edit.replacement.strip(), text.splitlines()[edit.start.line - 1].strip())
        for edits in possible_edits(rule, finding, [None], files_that_ran(location))
        for edit in edits
    ]


@pytest.mark.parametrize(
    ("line", "is_edited"),
    [
        ("loss = f(model.module(x))  # <-", True),
        ("loss = f(self.net.module(x), y)  # <-", True),
        ("loss = f(model.module.forward(x))  # <-", True),
        ("fit = lambda x: self.net.module.forward(x); fit(x)  # <-", True),
        ("loss = f(model.module.body(x))  # <-", False),
        ("inner = model.module; loss = f(inner(x))  # <-", False),
        ("loss = model.module.loss(x)  # <-", False),
        ("loss = f(a.module(x), b.module(x))  # <-", False),
    ],
)
def test_the_wrapper_is_called_itself(line, is_edited, tmp_path):
    found = changed(tmp_path, UnsynchronisedGradient, line)
    assert [text for _, text, _ in found] == ([""] if is_edited else [])


def test_the_forward_of_the_wrapped_model_becomes_a_call_of_the_wrapper(tmp_path):
    line = "out = self.net.module.forward(x, mask=None)  # <-\n"
    changed(tmp_path, UnsynchronisedGradient, line)
    path = tmp_path / "train.py"
    site = Site(file=str(path), line=1, function="main", source=line.strip())
    found = Finding(
        rule="GS802", name="", severity="error", message="", remedy="", location=site,
        related=(), parameters=(), modules=(), evidence=(), count=1, fingerprint="",
    )  # fmt: skip
    (edits,) = possible_edits(UnsynchronisedGradient, found, [None], files_that_ran(site))
    assert applied(line, edits) == "out = self.net(x, mask=None)  # <-\n"


SAMPLED = """
def main(epochs):
    sampler = DistributedSampler(data)  # <-
    loader = DataLoader(data, sampler=sampler)
    for {epoch} in {epochs}:
        for x in {items}:  # also
            train(x)
"""


@pytest.mark.parametrize(
    ("epoch", "epochs", "items", "added"),
    [
        ("epoch", "range(3)", "loader", ["sampler.set_epoch(epoch)"]),
        ("e", "range(1, epochs)", "enumerate(loader)", ["sampler.set_epoch(e)"]),
        ("epoch", "tqdm(range(3), desc='epochs')", "loader", ["sampler.set_epoch(epoch)"]),
        ("epoch", "tqdm.trange(3)", "tqdm(loader)", ["sampler.set_epoch(epoch)"]),
        ("epoch", "tqdm(names)", "loader", []),
        ("_", "range(3)", "loader", []),
        ("name", "('a', 'b')", "loader", []),
    ],
)
def test_the_epoch_is_set_before_the_loop(epoch, epochs, items, added, tmp_path):
    text = SAMPLED.format(epoch=epoch, epochs=epochs, items=items)
    found = changed(tmp_path, SameOrderEveryEpoch, text)
    assert [one for _, one, _ in found] == added


def test_a_sampler_made_elsewhere_is_that_of_the_loader(tmp_path):
    text = """
    def make():
        sampler = DistributedSampler(data)  # <-
        return DataLoader(data, sampler=sampler)
    def main(loader):
        for epoch in range(3):
            for x in loader:  # also
                train(x)
    """
    found = changed(tmp_path, SameOrderEveryEpoch, text)
    assert [one for _, one, _ in found] == ["loader.sampler.set_epoch(epoch)"]


ACCUMULATED = """
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(net)
for step in range(8):
    for {target} in {items}:
        loss = f(model(x)) / 4  # <-
        loss.backward()  # also
    opt.step()  # also
"""
COUNTED = """
import torch
model = torch.nn.parallel.DistributedDataParallel(net)
for {target} in {items}:
    loss = f(model(x))  # <-
    loss.backward()  # also
    {before}
    if {test}:
        opt.step()  # also
"""


@pytest.mark.parametrize(
    ("target", "items", "last"),
    [
        ("micro", "range(4)", "micro == 3"),
        ("i", "range(parts)", "i == parts - 1"),
        ("i", "range(1, 5)", None),
        ("x", "batches", None),
    ],
)
def test_only_the_last_micro_batch_of_a_loop_is_reduced(target, items, last, tmp_path):
    text = ACCUMULATED.format(target=target, items=items)
    found = changed(tmp_path, NeedlessSynchronisation, text)
    expected = [] if last is None else [f"model.require_backward_grad_sync = {last}"]
    assert [one for _, one, _ in found] == expected


@pytest.mark.parametrize(
    ("target", "test", "before", "is_edited"),
    [
        ("i, x", "(i + 1) % 4 == 0", "", True),
        ("i, x", "i % parts == parts - 1", "", True),
        ("x", "count % 4 == 0", "count += 1", False),
        ("i, x", "i == last", "", False),
        ("i, x", "i % 4 == 0", "with model.no_sync(): pass", False),
    ],
)
def test_the_condition_of_the_step_tells_the_last_micro_batch(
    target, test, before, is_edited, tmp_path
):
    text = COUNTED.format(
        target=target, items="enumerate(loader)", test=test, before=before or "pass"
    )
    found = changed(tmp_path, NeedlessSynchronisation, text)
    expected = [f"model.require_backward_grad_sync = {test}"] if is_edited else []
    assert [one for _, one, _ in found] == expected
