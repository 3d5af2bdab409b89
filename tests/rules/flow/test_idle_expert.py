import pytest

from gradscope.recording.evidence.logits import RouterRecord
from gradscope.recording.records import TensorRef
from gradscope.rules.flow.idle_expert import IdleExpert
from tests.rules.flow.captured_evidence import found_by, module, with_captured

MIXTURE = (
    module(0, "model", "Mixture", None),
    module(1, "model.experts", "ModuleList", 0),
    *(module(2 + i, f"model.experts.{i}", "Linear", 1) for i in range(4)),
)
EQUAL = (0.25, 0.25, 0.25, 0.25)


def router(shares, rows=1000):
    return RouterRecord(
        tensor=TensorRef(node=0, slot=0), chosen=1, rows=rows, shares=shares, entropy=0.9
    )


def found(*shares, modules=MIXTURE, rows=1000, last=100):
    steps = zip((0, 1, 2, last), [router(one, rows) for one in shares], strict=True)
    return found_by(IdleExpert, with_captured(steps, modules))


def test_an_expert_that_is_never_chosen_is_a_warning():
    idle = (0.5, 0.25, 0.25, 0.0)
    (finding,) = found(EQUAL, idle, idle, idle)
    assert (finding.severity, finding.step) == ("warning", 1)
    assert "1 of 4 experts of model (3)" in finding.message


@pytest.mark.parametrize(("share", "count"), [(0.0124, 1), (0.0125, 0), (0.0126, 0)])
def test_share_decides(share, count):
    shares = (0.5, 0.25, 0.25 - share, share)
    assert len(found(EQUAL, EQUAL, shares, shares)) == count


def test_a_router_that_is_unequal_at_first_is_healthy():
    assert not found((1.0, 0, 0, 0), (0.9, 0.1, 0, 0), EQUAL, EQUAL)


def test_choices_of_something_else_than_experts_are_healthy():
    pooled = (1.0, 0.0, 0.0, 0.0)
    assert not found(*[pooled] * 4, modules=MIXTURE[:1])


@pytest.mark.parametrize(
    ("rows", "last", "count"), [(99, 100, 0), (100, 100, 1), (100, 49, 0), (100, 50, 1)]
)
def test_few_rows_or_early_steps_are_not_judged(rows, last, count):
    assert len(found(*[(1.0, 0.0, 0.0, 0.0)] * 4, rows=rows, last=last)) == count
