"""Repetitions in a row, folded."""

from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.timeline import folded, merged, shape_of

WORDS = st.lists(st.sampled_from("abc"), max_size=60)


def unfolded(folds):
    words = []
    for fold in folds:
        assert fold.least == fold.most
        words += (unfolded(fold.group) if fold.group else [fold.word]) * fold.least
    return words


def written(folds):
    return (
        " ".join(
            (f"({written(fold.group)})" if fold.group else fold.word)
            + (f"*{fold.least}" if fold.most == fold.least else f"*{fold.least}-{fold.most}")
            for fold in folds
        )
        .replace("*1 ", " ")
        .removesuffix("*1")
        .replace("*1)", ")")
    )


@given(WORDS)
def test_what_is_folded_says_what_was_there(words):
    assert unfolded(folded(words)) == words


def test_a_word_that_repeats_is_told_once():
    assert written(folded(list("zbbbbs"))) == "z b*4 s"


def test_a_group_that_repeats_is_told_once():
    assert written(folded(list("zfbfbfbs"))) == "z (f b)*3 s"


def test_groups_hold_repetitions():
    assert written(folded(list("fbbfbbs"))) == "(f b*2)*2 s"


def test_many_repetitions_are_folded_as_one():
    assert written(folded(["b"] * 5000)) == "b*5000"


def test_sequences_of_one_shape_merge_into_ranges():
    few, many = folded(list("bbs")), folded(list("bbbbbs"))
    assert shape_of(few) == shape_of(many)
    assert written(merged(few, many)) == "b*2-5 s*1-1".replace("*1-1", "")


def test_another_order_is_another_shape():
    assert shape_of(folded(list("bbs"))) != shape_of(folded(list("sbb")))
