"""Moves of statements: what is assigned between them stays in order."""

from textwrap import dedent

import libcst as cst
import pytest

from gradscope.recording.records import Site
from gradscope.rules.precision.fixes import scaler_edits
from gradscope.source_edits.moved_statements import moved_after
from gradscope.source_edits.source_file import SourceFile
from gradscope.source_edits.text_edits import applied


def parsed(text):
    return SourceFile("/train.py", dedent(text))


def first_moved_behind_last(text):
    source = parsed(text)
    first, *_, last = source.all(cst.BaseSmallStatement)
    return applied(source.text, source.edits(moved_after(source, first, last)))


@pytest.mark.parametrize("first", ["x = 1", "x += 1", "x: int = 1", "print(x := 1)"])
def test_a_statement_stays_before_what_reads_what_it_assigns(first):
    text = f"{first}\nprint(x)\nstep()\n"
    assert first_moved_behind_last(text) == text


@pytest.mark.parametrize("first", ["x = 1", "x += 1", "x: int = 1", "print(x := 1)"])
def test_a_statement_moves_behind_what_does_not_read_it(first):
    text = f"{first}\nprint(y)\nstep()\n"
    assert first_moved_behind_last(text) == f"print(y)\nstep()\n{first}\n"


def test_a_scaler_gets_a_name_that_the_file_does_not_use():
    source = parsed(
        """
        import torch
        scaler = grad_scaler = scaler2 = None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            with torch.autocast("cuda"):
                loss = model(x)
            loss.backward()
            optimizer.step()
        """
    )
    site = Site(file="/train.py", line=6, function="<module>", source="")
    text = applied(source.text, scaler_edits(source, site))
    assert 'scaler3 = torch.amp.GradScaler("cuda")' in text
    assert "scaler3.scale(loss).backward()" in text
