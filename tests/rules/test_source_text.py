import io
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.rules.helpers.source_text import plain_source

LINE = "x = torch.where(mask, self.layers[1](x), scale * y.sum(dim=1))"


@pytest.mark.parametrize(
    "layout",
    [
        LINE,
        f"    {LINE}   # why",
        LINE.replace(" ", ""),
        LINE.replace(", ", ",\n    ").replace("(mask", "(\n    mask"),
        LINE.replace("=1))", "=1,),)"),
        LINE.replace("scale * y.sum(dim=1)", "(scale * y.sum(dim=1))"),
        LINE.replace("x = ", "x = \\\n  "),
        LINE.replace("dim=1", "dim=-2"),
    ],
)
def test_layout_and_sizes_do_not_count(layout):
    assert plain_source(layout) == plain_source(LINE)


@pytest.mark.parametrize(
    "other",
    [
        LINE.replace("layers[1]", "layers[2]"),
        LINE.replace("layers[1]", "layers[-1]"),
        LINE.replace("scale *", "scale /"),
        LINE.replace("mask", "mask2"),
        LINE.replace("x = ", "x2 = "),
        "",
    ],
)
def test_other_names_operators_and_indices_count(other):
    assert plain_source(other) != plain_source(LINE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f('a # b', 1)", 'f("a # b", 2)  # c'),
        ("betas=(0.9, .95)", "betas=(1e-1, 0X1F)"),
        ("[1, 2_000][0]", "[3, 4][0]"),
        ("a - 1", "a - 2.5j"),
        ("return -1", "return 7"),
        ('f"""a\n{b}"""', "f'''a\n{b}'''"),
    ],
)
def test_texts_are_read_as_python_reads_them(one, other):
    assert plain_source(one) == plain_source(other)


def test_texts_in_quotes_count_letter_by_letter():
    assert plain_source("f('a b')") != plain_source("f('ab')")
    assert plain_source("f('1')") != plain_source("f('2')")
    assert plain_source("f('a')") != plain_source("f(a)")


@given(st.text(max_size=80))
def test_any_part_of_a_file_can_be_read(text):
    plain = plain_source(text)
    assert plain_source(f"  {text}  ") == plain
    assert plain == " ".join(plain.split(" "))


NAMES = st.sampled_from(["x", "self.fc1", "layers[0]", "'a b'", "f(x)", "1.5", "{1: x}"])


@given(st.lists(NAMES, min_size=1, max_size=5), st.data())
def test_white_space_between_tokens_does_not_count(parts, data):
    text = f"y = g({', '.join(parts)})"
    tokens = [
        t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()
    ]
    gaps = [data.draw(st.sampled_from(["", " ", "\n", "\t ", " # c\n"])) for _ in tokens]
    spread = "".join(token + gap for token, gap in zip(tokens, gaps, strict=True))
    assert plain_source(spread) == plain_source(text)
