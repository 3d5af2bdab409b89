"""Which parameter is which, whatever the names begin with and whatever order they are in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.comparison.matching import WRAPPERS, Renaming, match_parameters
from tests.comparison.sides import GivenGradient, parameter

part = st.sampled_from(["fc", "attn", "0", "1", "weights", "é", "a b", "</script>"])
own = st.sampled_from(["weight", "bias"])
names = st.lists(
    st.builds(lambda parts, last: ".".join([*parts, last]), st.lists(part, max_size=3), own),
    min_size=1,
    max_size=12,
    unique=True,
)
prefixes = st.lists(st.sampled_from(["model", "net", "encoder", "x y"]), max_size=2)


def records(names, dims=None, **given):
    dims = dims or {}
    return [
        parameter(position, name, GivenGradient(dims=dims.get(name, (2, 2)), **given))
        for position, name in enumerate(names)
    ]


def matched(base, other):
    """Names in the base and in the other model, of records or names."""
    ours, theirs = (
        [
            one if hasattr(one, "name") else parameter(position, one)
            for position, one in enumerate(given)
        ]
        for given in (base, other)
    )
    found = match_parameters(ours, theirs)
    return {ours[a].name: theirs[b].name for a, b in found.pairs}, found.renamings


@given(names=names, order=st.randoms(use_true_random=False))
def test_equal_names_are_matched_in_any_order(names, order):
    shuffled = [*names]
    order.shuffle(shuffled)
    found, renamings = matched(names, shuffled)
    assert found == {name: name for name in names}
    assert renamings == ()


@given(names=names, before=prefixes, after=prefixes, order=st.randoms(use_true_random=False))
def test_another_beginning_of_all_names_is_found(names, before, after, order):
    """Shapes of their own keep other pairs from being equal."""
    ours, theirs = (
        [
            parameter(position, ".".join([*prefix, name]), GivenGradient(dims=(position + 1,)))
            for position, name in enumerate(names)
        ]
        for prefix in (before, after)
    )
    order.shuffle(theirs)
    pairs = match_parameters(ours, theirs).pairs
    if not {one.name for one in ours} & {one.name for one in theirs}:
        assert len(pairs) == len(names)
        assert all(ours[a].shape == theirs[b].shape for a, b in pairs)


@given(names=names, positions=st.lists(st.integers(0, 3), min_size=12, max_size=12),
       wrapper=st.sampled_from(sorted(WRAPPERS)))  # fmt: skip
def test_wrappers_anywhere_in_the_names_are_seen_through(names, positions, wrapper):
    wrapped = []
    for name, position in zip(names, positions, strict=False):
        *modules, last = name.split(".")
        modules.insert(position, wrapper)
        wrapped.append(".".join([*modules, last]))
    found, renamings = matched(names, wrapped)
    assert found == dict(zip(names, wrapped, strict=True))
    assert renamings == (Renaming(before="", after=f"{wrapper}.", parameters=len(names)),)


@given(ours=names, theirs=names)
def test_no_parameter_is_matched_twice_and_equal_names_always_are(ours, theirs):
    base, other = records(ours), records(theirs)
    pairs = match_parameters(base, other).pairs
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    assert {(a, b) for a, one in enumerate(ours) for b, name in enumerate(theirs)
            if one == name} <= set(pairs)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"), [("model.", "net."), ("", "module."), ("net.model.", ""), ("a.", "b.c.")]
)
def test_the_renaming_is_told(before, after):
    names = ["fc.weight", "fc.bias", "head.weight"]
    found, renamings = matched([before + name for name in names], [after + name for name in names])
    assert len(found) == 3
    assert renamings == (Renaming(before=before, after=after, parameters=3),)


def test_a_new_layer_does_not_keep_a_renamed_model_from_being_matched():
    names = ["0.weight", "0.bias", "2.weight"]
    found, _ = matched([f"net.{name}" for name in names],
                       [f"model.{name}" for name in [*names, "4.weight"]])  # fmt: skip
    assert found == {f"net.{name}": f"model.{name}" for name in names}


def test_two_models_that_both_go_by_other_names_are_told_apart_by_their_shapes():
    shapes = {"G": (8, 2), "D": (2, 8), "generator": (8, 2), "critic": (2, 8)}
    dims = {f"{one}.0.{own}": shape for one, shape in shapes.items() for own in ("weight", "bias")}
    names = list(dims)
    found, renamings = matched(records(names[:4], dims), records(names[4:], dims))
    assert found["G.0.weight"] == "generator.0.weight"
    assert found["D.0.weight"] == "critic.0.weight"
    assert (len(found), len(renamings)) == (4, 2)


def test_twins_of_which_neither_name_is_left_are_not_guessed():
    """Near miss: equal shapes, and nothing tells which is which."""
    found, _ = matched(["a.weight", "b.weight"], ["c.weight", "d.weight"])
    assert found == {}


REST = ["body.0.weight", "body.1.weight", "body.2.weight"]


def test_a_layer_that_takes_the_place_of_another_of_its_shape_is_told_as_renamed():
    ours, theirs = ([*REST, f"head.{name}.weight", f"head.{name}.bias"] for name in ("fc", "proj"))
    found, renamings = matched(ours, theirs)
    assert found["head.fc.weight"] == "head.proj.weight"
    assert renamings == (Renaming(before="head.fc.", after="head.proj.", parameters=2),)


def test_a_lone_parameter_is_not_taken_for_another():
    """Near miss: a scale that was removed, and another that was added somewhere else."""
    found, renamings = matched([*REST, "old.scale"], [*REST, "new.scale"])
    assert (set(found), renamings) == (set(REST), ())


def test_a_layer_of_another_shape_is_a_new_one():
    ours = records([*REST, "old.fc.weight"], {"old.fc.weight": (10, 2)})
    theirs = records([*REST, "new.fc.weight"], {"new.fc.weight": (12, 2)})
    assert set(matched(ours, theirs)[0]) == set(REST)


def layers(**sizes):
    """Linear and normalisation layers by their numbers: of one size, the latter."""
    dims = {}
    for number, size in sizes.items():
        whole = tuple(size) if isinstance(size, tuple) else (size,)
        dims |= {f"net.{number[1:]}.weight": whole, f"net.{number[1:]}.bias": whole[:1]}
    return records(list(dims), dims)


def modules(found):
    return {a.split(".")[1]: b.split(".")[1] for a, b in found.items()}


def test_layers_that_a_new_one_has_moved_are_found_by_what_they_are():
    base = layers(_0=(64, 16), _2=(64, 64), _4=(10, 64))
    dropout = layers(_0=(64, 16), _3=(64, 64), _6=(10, 64))
    found, renamings = matched(base, dropout)
    assert modules(found) == {"0": "0", "2": "3", "4": "6"}
    assert [(one.before, one.after) for one in renamings] == [
        ("net.2.", "net.3."), ("net.4.", "net.6."),
    ]  # fmt: skip
    normalised = layers(_0=(64, 16), _1=64, _3=(64, 64), _4=64, _6=(10, 64))
    assert modules(matched(base, normalised)[0]) == {"0": "0", "2": "3", "4": "6"}
    assert modules(matched(normalised, base)[0]) == {"0": "0", "3": "2", "6": "4"}


def test_layers_of_another_width_stay_in_their_places():
    """Near miss: no other layer is what they were."""
    base = layers(_0=(64, 16), _2=(64, 64), _4=(10, 64))
    found, renamings = matched(base, layers(_0=(32, 16), _2=(32, 32), _4=(10, 32)))
    assert (modules(found), renamings) == ({"0": "0", "2": "2", "4": "4"}, ())


def test_another_block_at_the_end_moves_none():
    base = layers(**{f"_{position}": (64, 64) for position in range(4)})
    longer = layers(**{f"_{position}": (64, 64) for position in range(6)})
    found, renamings = matched(base, longer)
    assert (modules(found), renamings) == (
        {str(position): str(position) for position in range(4)},
        (),
    )


def test_another_name_of_the_same_tensor_counts():
    ours = records(["embed.weight"], aliases=("head.weight",))
    theirs = [parameter(0, "head.weight", GivenGradient(aliases=("embed.weight",)))]
    assert matched(ours, theirs)[0] == {"embed.weight": "head.weight"}
