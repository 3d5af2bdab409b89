"""An edit of a file in another format is the same edit, and all else stays as it is."""

import re

import pytest

from gradscope.fixes.proposing import Proposals
from gradscope.rules.selection import parsed_selectors
from tests.fixes import odd_formats, odd_programs, odd_trainings, odd_updates
from tests.fixes.in_process import training_report
from tests.nightly import some_on_push
from tests.rules.inspecting import report_of_file

NAMES = {
    "gs205_added",
    "gs207_appended",
    "gs301_scaler_in_a_with",
    "gs311_start_of_epoch",
    "gs312_evaluation_at_the_end_of_an_epoch",
    "gs503_element",
    "gs701_layer_without_last_comma",
}
FIRST = "#\n# naïve\n"
"""First lines, with room for the name of an encoding."""


def tabs(text):
    return re.sub(r"^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.M)


def latin_1(text):
    return text.replace("#", "# coding: latin-1", 1).encode("latin-1")


FORMATS = {
    "carriage_returns": lambda text: text.replace("\n", "\r\n").encode(),
    "byte_order_mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "tabs": lambda text: tabs(text).encode(),
    "no_last_line_break": lambda text: text.rstrip("\n").encode(),
    "latin_1": latin_1,
    "all_at_once": lambda text: latin_1(tabs(text).rstrip("\n").replace("\n", "\r\n")),
}
PROGRAMS = [
    pytest.param(one, id=one.name)
    for one in [
        *odd_programs.PROGRAMS,
        *odd_trainings.PROGRAMS,
        *odd_updates.PROGRAMS,
        *odd_formats.PROGRAMS,
    ]
    if one.name in NAMES
]


@pytest.mark.parametrize("program", some_on_push(PROGRAMS, 3))
def test_an_edit_is_the_same_in_every_format(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / f"{program.name}.py"
    text = FIRST + program.text
    path.write_text(text, encoding="utf-8")
    report = training_report(path) if program.is_training else report_of_file(path)

    def written():
        proposals = Proposals(report.recording, parsed_selectors([program.rule]))
        (proposal,) = proposals.of(report.findings)
        return [written_texts(proposals, edits)[str(path)] for edits in proposal.candidates]

    edited = [content.decode() for content in written()]
    assert text not in edited
    for name, convert in FORMATS.items():
        path.write_bytes(convert(text))
        assert written() == [convert(one) for one in edited], name


def written_texts(proposals, edits):
    texts = proposals.edited(edits)
    return {file: text.encode(proposals.files.read(file).encoding) for file, text in texts.items()}
