from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.number_format import folded_names

ENCODER = tuple(
    f"encoder.layers.{number}.{part}.{name}"
    for number, part, name in product(range(12), ("attn.q", "mlp.2"), ("weight", "bias"))
)
EVERY = (*ENCODER, "encoder.norm.weight", "head.weight", "head.bias")


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (ENCODER, ("encoder.layers.*",)),
        ((*ENCODER, "encoder.norm.weight"), ("encoder.*",)),
        ([n for n in ENCODER if "q." in n], ("encoder.layers.[0-11].attn.*",)),
        ([n for n in ENCODER if "q.bias" in n], ("encoder.layers.[0-11].attn.q.bias",)),
        (
            [f"encoder.layers.{n}.attn.q.bias" for n in (0, 1, 2, 7)],
            ("encoder.layers.[0-2,7].attn.q.bias",),
        ),
        (("encoder.norm.weight",), ("encoder.norm.weight",)),
        (("head.weight", "encoder.norm.weight"), ("head.weight", "encoder.norm.weight")),
        ((), ()),
    ],
)
def test_names_fold_to_modules_and_ranges(names, patterns):
    assert folded_names(names, EVERY) == patterns


def test_numbers_fold_only_where_every_combination_is_there():
    every = [f"a.{i}.b.{j}.{name}" for i, j, name in product("01", "01", ("w", "v"))]
    assert folded_names([n for n in every if n.endswith("w")], every) == ("a.[0-1].b.[0-1].w",)
    assert folded_names(["a.0.b.0.w", "a.1.b.1.w"], every) == ("a.0.b.0.w", "a.1.b.1.w")


def test_parameters_of_the_model_itself_have_no_module():
    assert folded_names(["weight", "bias"], ["weight", "bias"]) == ("weight", "bias")
    assert folded_names(["0", "1"], ["0", "1", "2"]) == ("[0-1]",)


def expanded(pattern, every):
    """The names that a pattern stands for, by reading it."""
    if pattern.endswith(".*"):
        heads = set(expanded(pattern[:-2], ()))
        return {name for name in every for head in heads if name.startswith(f"{head}.")}
    choices = []
    for part in pattern.split("."):
        if not part.startswith("["):
            choices.append([part])
            continue
        runs = [run.split("-") for run in part[1:-1].split(",")]
        choices.append([str(n) for run in runs for n in range(int(run[0]), int(run[-1]) + 1)])
    return {".".join(parts) for parts in product(*choices)}


NAME = st.builds(".".join, st.lists(st.sampled_from("012ab"), min_size=1, max_size=4))


@given(st.sets(NAME, min_size=1), st.data())
def test_patterns_stand_for_the_names_and_for_no_other(every, data):
    # A module is no parameter: no name is the beginning of another.
    every = {n for n in every if not any(other.startswith(f"{n}.") for other in every)}
    names = data.draw(st.sets(st.sampled_from(sorted(every))))
    patterns = folded_names(sorted(names), sorted(every))
    assert set().union(*(expanded(pattern, every) for pattern in patterns)) == names
