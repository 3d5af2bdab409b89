"""Where in a file a key stands."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from gradscope.config.document import lines_of

TABLE = ("tool", "gradscope")


def line(text, *path):
    return lines_of(text).get((*TABLE, *path))


def test_keys_of_every_spelling_have_a_line():
    text = '''# a comment
[project]
description = """
[tool.gradscope]
seeds = 3
"""
urls = [
  ["a"],
  ["b"]
]

[[x]]
y = [[1,
2]]
[tool . "gradscope"]  # spaces and quotes
  select = [   # over lines
    "GS1", # ]
    "reach",
  ]
  'ignore' = []
rules.dead-unit = { rows = 3, few_rows = 4 }
rules . zero-gradient."note_below" = 1
baseline = """
seeds = 3"""

[tool.gradscope.targets.small]
target = "m"

[tool.other]
gradscope = 3
'''
    assert tomllib.loads(text)
    positions = {
        ("select",): 16,
        ("ignore",): 20,
        ("rules", "dead-unit"): 21,
        ("rules", "dead-unit", "few_rows"): 21,
        ("rules", "zero-gradient", "note_below"): 22,
        ("baseline",): 23,
        ("targets", "small"): 26,
        ("targets", "small", "target"): 27,
    }
    assert {path: line(text, *path) for path in positions} == positions
    assert line(text, "seeds") is None


def test_whole_table_may_stand_in_one_line():
    text = '\ntool.gradscope = { seeds = 3, targets = { a = "m" } }\n'
    assert line(text, "seeds") == line(text, "targets", "a") == 2


def test_line_breaks_of_windows_count_once():
    assert line("[tool.gradscope]\r\n\r\nselect = [\r\n]\r\nseeds = 3\r\n", "seeds") == 5


KEYS = st.sampled_from(["seeds", '"a b"', "'lr'", "x.y", 'rules."z".w'])
VALUES = st.sampled_from(
    ["1", '"#"', "[1,\n2]", '"""\n[tool.gradscope]\n"""', "{ a = 1 }", "'''\n'''", "[[\n],[]]"]
)
GAPS = st.sampled_from(["", "\n", "# x = 1\n", "  \n"])
STATEMENTS = st.lists(st.tuples(KEYS, VALUES, GAPS), unique_by=lambda one: one[0])


@given(before=STATEMENTS, own=STATEMENTS)
def test_line_is_that_of_the_statement(before, own):
    text, expected = "[project]\n", {}
    for key, value, gap in before:
        text += f"{gap}{key} = {value}\n"
    text += "[tool.gradscope]\n"
    for key, value, gap in own:
        text += gap
        first = next(iter(tomllib.loads(f"{key} = 1")))
        expected.setdefault((first,), text.count("\n") + 1)
        text += f"{key} = {value}\n"
    assert tomllib.loads(text)
    assert {path: line(text, *path) for path in expected} == expected


def test_long_lists_take_no_time():
    rows = "".join(f'  ["a{i}", "b"],\n' for i in range(20_000))
    assert line(f"[x]\ny = [\n{rows}]\n[tool.gradscope]\nseeds = 3\n", "seeds") == 20_005
