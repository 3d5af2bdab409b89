"""Lines of a script that can set ranks apart, read from its source."""

from textwrap import dedent

import pytest

from gradscope.capture.ranks.gather_flow import Reach, _reach
from gradscope.capture.ranks.written_lines import written_lines
from gradscope.recording.evidence.ranks import RankEvent
from tests.rules.ranks.running import script

BUCKETS = """
def flush(bucket):
    dist.all_reduce(torch.cat(bucket))  # 3

def reduce(params):
    bucket = []
    for p in params:  # loop
        bucket.append(p.grad)
        if len(bucket) == 4:  # condition
            flush(bucket)
            bucket = []

for x in data:  # trains
    model(x).sum().backward()
    reduce(model.parameters())
    opt.step()
"""

LOCAL = """
weight = self.weight.to_local()  # taken
known = self.weight.to_local(grad_placements=[Partial()])
part = p.grad.to_local()
"""


BODY = """
model = Net()
parameters = list(model.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.05)
for step in range(20):
    x, y = batch()
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
    for p in parameters:
        p.data = p.data * 0.999
"""


@pytest.fixture
def numbers(tmp_path):
    """Returns the marked lines of a source, and those of a kind."""

    def found(source, kind):
        path = tmp_path / "train.py"
        path.write_text(dedent(source))
        lines = path.read_text().splitlines()
        return [
            lines[line.number - 1].rpartition("# ")[2]
            for one, line in written_lines(str(path))
            if one == kind
        ]

    return found


def test_a_loop_that_reduces_through_a_function_is_found_and_the_training_is_not(numbers):
    assert numbers(BUCKETS, "reduce") == ["loop", "condition"]


def test_a_local_part_without_placements_of_its_gradient_is_found(numbers):
    assert numbers(LOCAL, "local") == ["taken"]


GATHERS = """
def training_step(self, a):
    every = self.all_gather(a)
    <own>
    loss = cross_entropy(a @ every.T, target)
    return loss

def validation_step(self, a):
    score = self.all_gather(a)
    self.log("score", score)
"""


@pytest.mark.parametrize(
    ("own", "start", "expected"),
    [
        ("pass", "every", Reach(loss=True, own=False)),
        ("every[rank] = a", "every", Reach(loss=True, own=True)),
    ],
)
def test_a_returned_gather_is_followed_to_the_loss(tmp_path, own, start, expected):
    path = tmp_path / "lit.py"
    path.write_text(GATHERS.replace("<own>", own))
    assert _reach(str(path), 3, (start,)) == expected


def test_a_gradient_in_the_former_memory_of_a_weight_is_no_weight(jobs, tmp_path):
    recordings = jobs.recordings(script(BODY, tmp_path), tmp_path / "job")
    kinds = {event.kind for one in recordings for event in one.evidence_of(RankEvent)}
    assert "gradient-reduced" in kinds
    assert "weight-reduced" not in kinds
