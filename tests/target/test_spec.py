from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.errors import GradscopeError
from gradscope.target.notation import parse_expression, parse_input, parse_target


@pytest.mark.parametrize(
    ("text", "location", "expression"),
    [
        ("model.py", "model.py", None),
        ("model.py:net", "model.py", "net"),
        ("src/model.py:Net(10, depth=2)", "src/model.py", "Net(10, depth=2)"),
        ("package.module", "package.module", None),
        ("package.module:holder.net", "package.module", "holder.net"),
        ("C:/code/model.py", "C:/code/model.py", None),
        ("C:\\code\\model.py:net", "C:\\code\\model.py", "net"),
        ("C:model.py", "C:model.py", None),
        ("a:b/model.py", "a:b/model.py", None),
        ("model.py:Net('a:b')", "model.py", "Net('a:b')"),
        ("model.py:Net('a/b')", "model.py", "Net('a/b')"),
    ],
)
def test_target_is_split_at_the_last_colon_before_an_expression(text, location, expression):
    parsed = parse_target(text)
    assert parsed.location == location
    assert (parsed.expression and parsed.expression.text) == expression


def test_existing_path_is_never_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd:name").write_text("")
    assert parse_target("odd:name").location == "odd:name"


def test_call_keeps_literal_arguments():
    call = parse_expression("Net([1, 2], name='x', on=True)").call
    assert call is not None
    assert call.positional == ([1, 2],)
    assert call.keywords == (("name", "x"), ("on", True))


@pytest.mark.parametrize(
    "text",
    ["", "1", "Net(x)", "Net(__import__('os'))", "a[0]", "f()()", "a b", "Net(**{})", "(" * 500],
)
def test_anything_but_names_and_literal_calls_is_refused(text):
    with pytest.raises(GradscopeError, match="cannot read"):
        parse_expression(text)


def test_unreadable_expression_of_a_target_is_named():
    with pytest.raises(GradscopeError, match=r"cannot read 'Net\(hidden\)'"):
        parse_target("model.py:Net(hidden)")


@given(st.text(alphabet=st.sampled_from("ab1.,:/\\=[]()'-_ \x00é"), max_size=30))
def test_any_text_is_parsed_or_refused_in_words(text):
    for parse in (parse_target, parse_expression, parse_input):
        with suppress(GradscopeError):
            parse(text)
