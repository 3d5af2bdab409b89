import linecache

import pytest

from gradscope.capture.source.statements import statements_around
from gradscope.recording.records import Site

TEXT = """\
import torch


def forward(
    x,
):
    y = torch.relu(
        x  # the input
    )
    for part in (
        y, x,
    ):
        y = y + part
    match y:
        case torch.Tensor():
            y = y * 2
    text = '''
    of two lines'''
    return [
%s
    ]
"""


@pytest.fixture
def statement_at(tmp_path):
    """The lines of the statements that are kept for a line of a text."""

    def find(text, line, folder="."):
        path = tmp_path / folder / "model.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        linecache.checkcache()
        site = Site(file=str(path), line=line, function="f", source="")
        return [(record.first, record.last) for record in statements_around([site, site])]

    return find


@pytest.mark.parametrize(
    ("line", "extents"),
    [
        (1, []),
        (4, [(4, 6)]),
        (8, [(7, 9)]),
        (10, [(10, 12)]),
        (12, [(10, 12)]),
        (13, []),
        (15, []),
        (16, []),
        (18, [(17, 18)]),
        (20, [(19, 21)]),
        (400, []),
    ],
)
def test_the_statement_of_several_lines_around_a_line_is_stored(statement_at, line, extents):
    assert statement_at(TEXT % "        y", line) == extents


def test_long_lists_are_no_single_statement(statement_at):
    assert statement_at(TEXT % ("        y,\n" * 200), 25) == []


@pytest.mark.parametrize("text", ["%matplotlib inline\nf(\n1)\n", "f(\n", "\0", ""])
def test_what_is_no_python_has_no_statements(statement_at, text):
    assert statement_at(text, 1) == []


def test_installed_code_is_left_out(statement_at):
    assert statement_at(TEXT % "        y", 8, folder="site-packages") == []
