"""Which parameters should be equal on all ranks, where no wrapper says so."""

from types import SimpleNamespace

import pytest

from gradscope.analysis.ranks.job import Job
from gradscope.analysis.ranks.parting import (
    own_parts,
    parted_beside_shards,
    parted_between_groups,
    parted_without_gradient,
)

SAME, OTHER = ("a", "b", "c"), ("d", "e", "f")


class Rank(SimpleNamespace):
    """A rank, as far as it is compared: norms of weights at two steps, and of gradients."""

    def steps(self, moment):
        return {"weight": [0, 8], "step": [0]}.get(moment, [])

    def squares(self, moment, step):
        if moment == "weight":
            return {name: values[step == 8] for name, values in self.weights.items()}
        return dict(self.gradients) if moment == "step" and step == 0 else {}


def rank(number, weights, gradients, *, digests=SAME, copies=0, kind="local", **events):
    places = {
        name: SimpleNamespace(shape=(4, 4), kind=kind, copies=copies, mesh=()) for name in weights
    }
    found = {key.replace("_", "-"): value for key, value in events.items()}
    parameters = [SimpleNamespace(name=name) for name in weights]
    return Rank(
        number=number,
        weights=weights,
        gradients=gradients,
        trained_names=frozenset(gradients),
        placements=places,
        passes=[SimpleNamespace(digest=one) for one in digests],
        wrapped=[],
        events=found,
        identity=None,
        recording=SimpleNamespace(parameters=parameters),
    )


def used(*indices):
    return [SimpleNamespace(subject=str(index)) for index in indices]


@pytest.mark.parametrize(
    ("other", "calls", "expected"),
    [
        ((1.0, 1.0), (used(1), used(1)), ["teacher"]),
        ((1.0, 3.0), (used(1), used(1)), []),  # all ranks change it alike
        ((2.0, 1.0), (used(1), used(1)), []),  # each rank has made its own
        ((1.0, 1.0), (used(1), []), []),  # only one rank uses it, for its evaluation
    ],
)
def test_weights_without_gradient_part_if_every_rank_uses_them(other, calls, expected):
    ranks = [
        rank(
            number,
            {"net": (1.0, 2.0), "teacher": teacher},
            {"net": 1.0},
            used_without_gradient=calls[number],
        )
        for number, teacher in enumerate([(1.0, 3.0), other])
    ]
    assert parted_without_gradient(Job(tuple(ranks))) == expected


BESIDE = {"reduced_too_early": ["a line"]}


def beside(stem, up, *, digests=SAME, events=BESIDE):
    """Two ranks with a stem of equal weights and a layer that they may share."""
    return Job(
        tuple(
            rank(
                number,
                {"stem.weight": stem[number], "up.weight": up[number], "up.bias": (1.0, number)},
                {"stem.weight": 1.0, "up.weight": 1.0, "up.bias": 1.0},
                digests=(SAME, digests)[number],
                **events,
            )
            for number in range(2)
        )
    )


APART, EQUAL, OWN = [(1.0, 2.0), (1.0, 3.0)], [(1.0, 2.0), (1.0, 2.0)], [(1.0, 2.0), (4.0, 3.0)]


def test_what_is_beside_shards_should_stay_equal():
    assert parted_beside_shards(beside(APART, OWN)) == ["stem.weight"]


@pytest.mark.parametrize(
    "job",
    [
        beside(EQUAL, OWN),
        beside(APART, EQUAL),  # no layer begins with parts of its own
        beside(APART, OWN, digests=OTHER),  # stages of a pipeline
        beside(APART, OWN, events={}),  # models that never meet
    ],
    ids=["equal", "no-shards", "other-batches", "no-sums"],
)
def test_other_ranks_need_no_equal_weights(job):
    assert parted_beside_shards(job) == []


def groups(weights, digests):
    return Job(
        tuple(
            rank(
                number,
                {"net": values},
                {"net": 1.0},
                digests=batches,
                copies=2,
                kind="replicated",
            )
            for number, (values, batches) in enumerate(zip(weights, digests, strict=True))
        )
    )


A, B, C = (1.0, 2.0), (1.0, 3.0), (7.0, 2.0)


@pytest.mark.parametrize(
    ("weights", "digests", "expected"),
    [
        ([A, A, B, B], [SAME, SAME, OTHER, OTHER], ["net"]),
        ([A, A, A, A], [SAME, SAME, OTHER, OTHER], []),  # groups of ranks with other batches
        ([A, A, B, B], [SAME, OTHER, ("g",) * 3, ("h",) * 3], []),  # two trainings
        ([A, A, C, C], [SAME, SAME, OTHER, OTHER], []),  # that begin apart
        ([A, B, A, B], [SAME, SAME, OTHER, OTHER], []),
    ],
)
def test_groups_of_ranks_with_equal_batches_average_nothing(
    monkeypatch, weights, digests, expected
):
    monkeypatch.setattr(Job, "world_size", 4)
    assert parted_between_groups(groups(weights, digests)) == expected


def test_modules_that_begin_apart_and_are_never_reduced_are_of_a_rank():
    ranks = [
        rank(
            number,
            {
                "gate.weight": (1.0, 2.0),
                "expert.weight": (number + 1.0, 5.0),
                "expert.bias": (0.0, number + 1.0),
                "seeded.weight": (number + 1.0, 5.0),
            },
            {
                "gate.weight": 1.0,
                "expert.weight": number + 1.0,
                "expert.bias": number + 1.0,
                "seeded.weight": 1.0,
            },
        )
        for number in range(2)
    ]
    assert own_parts(Job(tuple(ranks))) == {"expert.weight", "expert.bias"}
