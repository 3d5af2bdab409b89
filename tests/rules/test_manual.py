from dataclasses import dataclass
from typing import ClassVar

import pytest

from gradscope.rules.manual import manual_of, summary_of
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLoud(Rule):
    """The first line.

    What it finds:
        One paragraph that goes on
        in a second line.

        Another one:

        - an item
        - another

    Why it matters:
        It does.

    How it is measured:
        As a formula:

            a = b

    How to fix it:
        Do so.

    When it may be wrong:
        Never.

    Source:
        Measured: 3.
    """

    code: ClassVar[str] = "GS199"
    name: ClassVar[str] = "too-loud"
    level: ClassVar = "warning"
    explains: ClassVar[tuple[str, ...]] = ("GS2",)

    limit: float = 0.5
    """Share of something.

    Measured: .4.
    """
    rows: int = 64
    """Rows."""

    def check(self, context):
        yield from ()


def test_manual_holds_all_that_the_rule_says():
    manual = manual_of(TooLoud)
    assert (manual.code, manual.name, manual.family) == ("GS199", "too-loud", "flow")
    assert (manual.level, manual.explains) == ("warning", ("GS2",))
    assert manual.summary == summary_of(TooLoud) == "The first line."
    assert manual.sample == "sample_models/too_loud.py"
    assert [(one.name, one.default, one.text) for one in manual.thresholds] == [
        ("limit", 0.5, "Share of something. Measured: .4."),
        ("rows", 64, "Rows."),
    ]


def test_paragraphs_are_joined_and_lists_and_formulas_kept():
    texts = {section.heading: section.text for section in manual_of(TooLoud).sections}
    assert texts["What it finds"] == (
        "One paragraph that goes on in a second line.\n\nAnother one:\n\n- an item\n- another"
    )
    assert texts["How it is measured"] == "As a formula:\n\n    a = b"


@pytest.mark.parametrize(
    ("old", "new"),
    [("Source:", "Sources:"), ("How to fix it:", "How to fix:"), ("    Source:\n", "")],
)
def test_wrong_headings_are_errors(old, new, monkeypatch):
    monkeypatch.setattr(TooLoud, "__doc__", TooLoud.__doc__.replace(old, new))
    with pytest.raises(ValueError, match="GS199 has the headings"):
        manual_of(TooLoud)


def test_threshold_without_a_docstring_is_an_error():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Silent(TooLoud):
        floor: float = 1.0

    Silent.__doc__ = TooLoud.__doc__
    with pytest.raises(ValueError, match="GS199 does not say what `floor` is"):
        manual_of(Silent)
