"""Which siblings become one row, and what is kept of them."""

import math

import pytest

from gradscope.analysis.folding import (
    Span,
    cut_below,
    fold_modules,
    gradient_state,
    joined_paths,
    merge_containers,
    span,
    without_plain,
)
from gradscope.session.report import Report


def folded(build):
    (root,) = fold_modules(Report.from_recording(build.recording()).modules, gradient_state)
    return root


def names(tree):
    return [(child.name, child.copies) for child in tree.children]


def sequence(build, classes, norms=None):
    for number, class_name in enumerate(classes):
        module = build.add(str(number), class_name)
        if class_name == "Linear":
            build.weight(module, 1.0 if norms is None else norms[number])


def test_equal_blocks_become_one_with_the_range_of_their_norms(make_transformer):
    layers = folded(make_transformer(blocks=3)).children[1]
    assert names(layers) == [("[0-2]", 3)]
    assert [child.name for child in layers.children[0].children] == ["norm", "act", "linear"]
    assert layers.children[0].children[0].grad_norm == Span(low=0.01, high=0.04)


def test_blocks_of_another_class_are_not_folded(build):
    sequence(build, ["Linear", "Linear", "Conv", "Linear"])
    assert names(folded(build)) == [("[0-1]", 2), ("2", 1), ("3", 1)]


def test_block_without_gradient_stands_apart(build):
    sequence(build, ["Linear"] * 4, norms=[1.0, 1.0, None, 1.0])
    assert names(folded(build)) == [("[0-1]", 2), ("2", 1), ("3", 1)]


@pytest.mark.parametrize("broken", [0.0, math.nan, math.inf])
def test_broken_block_stands_apart(build, broken):
    sequence(build, ["Linear"] * 3, norms=[1.0, 1.0, broken])
    assert names(folded(build)) == [("[0-1]", 2), ("2", 1)]


def test_turns_of_a_pattern_are_folded_from_three_on(build):
    sequence(build, ["Linear", "ReLU"] * 3)
    assert names(folded(build)) == [("[0,2..4]", 3), ("[1,3..5]", 3)]


def test_two_turns_of_a_pattern_are_left(build):
    sequence(build, ["Linear", "ReLU"] * 2)
    assert len(folded(build).children) == 4


def test_names_that_are_no_numbers_are_never_folded(build):
    for name in ("first", "second"):
        build.add(name, "Linear")
    assert len(folded(build).children) == 2


def test_gap_in_the_numbers_ends_a_run(build):
    for name in ("0", "1", "3", "4"):
        build.add(name, "Linear")
    assert names(folded(build)) == [("[0-1]", 2), ("[3-4]", 2)]


def test_modules_without_parameters_are_left_out(make_transformer):
    kept = without_plain(folded(make_transformer(blocks=2)))
    block = kept.children[1].children[0]
    assert [child.name for child in block.children] == ["norm", "linear"]


def test_container_of_one_child_shares_its_row(make_transformer):
    merged = merge_containers(folded(make_transformer(blocks=2)))
    assert names(merged) == [("embed", 1), ("layers.[0-1]", 2), ("head", 1)]


def test_cut_keeps_what_lies_above(make_transformer):
    tree = folded(make_transformer(blocks=2))
    assert cut_below(tree, 1).size() == 4
    assert cut_below(tree, 0).size() == 1


def test_span_keeps_nan_and_missing_apart():
    assert span([None, None]) is None
    assert span([1.0, None, 3.0]) == Span(low=1.0, high=3.0)
    assert math.isnan(span([1.0, math.nan]).high)
    assert span([1.0, math.nan]).low == 1.0


def test_paths_that_differ_in_numbers_are_joined():
    assert joined_paths(["h.2.a", "h.10.a", "h.3.a"]) == "h.[2-3,10].a"
    assert joined_paths(["h.2.a"]) == "h.2.a"


def test_wrapper_and_the_model_of_its_path_share_a_row(build):
    outer = build.add("net", "DistributedDataParallel")
    inner = build.add("net", "Net", outer)
    build.weight(build.add("net.head", "Linear", inner), 1.0)
    build.weight(build.add("net.body", "Linear", inner), 1.0)
    (wrapper,) = folded(build).children
    merged = merge_containers(wrapper)
    assert (merged.name, names(merged)) == ("net", [("head", 1), ("body", 1)])


def test_container_that_is_an_only_child_goes_when_its_children_were_cut(build):
    inner = build.add("list", "ModuleList")
    for name in ("first", "second"):
        build.weight(build.add(f"list.{name}", "Linear", inner), 1.0)
    assert merge_containers(cut_below(folded(build), 1)).children == ()
    assert len(merge_containers(folded(build)).children[0].children) == 2
