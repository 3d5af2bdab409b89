"""Findings at fixed widths. GRADSCOPE_UPDATE_GOLDEN=1 rewrites the files."""

import re
from dataclasses import replace

import pytest

from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.finding import Consequence, Finding, RelatedLocation, SkippedRule, Verdict
from gradscope.recording.records import Site, Skipped
from tests.report.formats.test_golden import check

ROOT = "/home/user/project"
FILE = f"{ROOT}/model/network.py"
CODE = """\
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(x)
        # Kept for the plots.
        self.hidden = hidden = hidden.detach()

        scale = self.scale(hidden)
        return self.head(hidden) * scale + self.offset(hidden) * self.weighting(scale, hidden)
"""


def site(line, function="Network.forward", file=FILE):
    return Site(file=file, line=line, function=function, source=CODE.split("\n")[line - 98].strip())


def related(line, message, file=FILE):
    position = site(line)
    return RelatedLocation(file=file, line=line, message=message, source=position.source)


FINDINGS = (
    Finding(
        rule="GS201",
        name="gradient-cut",
        severity="error",
        message="no gradient comes to the encoder: detach() cuts it off from the loss, and nothing "
        "else leads to it",
        location=site(101),
        related=(
            related(99, "the last operation that carried its gradient"),
            related(104, "what was cut off comes in here, by way of everything else"),
            RelatedLocation(file=f"{ROOT}/train.py", line=12, message="where the encoder is made"),
        ),
        parameters=tuple(f"layers.{n}.linear.weight" for n in range(12)),
        evidence=(("parameters_cut", 12), ("share", 0.48)),
        remedy="drop the detach(), or keep the detached tensor for the plots under another "
        "name and hand `hidden` on",
        consequences=(
            Consequence(rule="GS102", name="vanishing-gradient", message="m"),
            Consequence(rule="GS203", name="unused-parameter", message="m"),
            Consequence(rule="GS203", name="unused-parameter", message="m"),
        ),
        fingerprint="f",
    ),
    Finding(
        rule="GS108",
        name="update-too-large",
        severity="warning",
        message="a step moves embed.weight by 0.31 of its own norm; 0.1 is the limit",
        location=None,
        parameters=("embed.weight",),
        evidence=(("update_to_weight", 0.31), ("limit", 0.1)),
        remedy="lower the learning rate",
        fingerprint="f",
    ),
    Finding(
        rule="GS209",
        name="input-requires-grad",
        severity="note",
        message="a tensor of the batch requires grad, and nobody reads its gradient",
        location=site(104),
        remedy="leave requires_grad out",
        fingerprint="f",
    ),
)
VERDICT = Verdict(
    findings=FINDINGS,
    ran=("GS201", "GS203", "GS209"),
    skipped=(
        SkippedRule(rule="GS205", reason="no optimizer is known"),
        SkippedRule(rule="GS206", reason="no optimizer is known"),
        SkippedRule(rule="GS301", reason="not selected"),
    ),
)


@pytest.fixture
def recording(make_transformer):
    source = SourceRecord(file=FILE, first=98, lines=tuple(CODE.split("\n")[:-1]))
    return make_transformer().recording(evidence=(source,))


def findings_part(text):
    """From the first finding to the numbers, and what could not be judged."""
    top, _, rest = text.partition("\nparameters  ")
    return top.split("\n\n", 1)[1] + rest[rest.find("\nNot judged") :]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_findings(width, recording, printed):
    check(f"findings-{width}", findings_part(printed(recording, width, verdict=VERDICT)))


def test_findings_in_ascii(recording, printed):
    text = printed(recording, encoding="ascii", verdict=VERDICT)
    check("findings-ascii", findings_part(text))
    assert text.isascii()


def test_colour_changes_no_character(recording, printed):
    plain = printed(recording, verdict=VERDICT)
    colored = printed(recording, color=True, verdict=VERDICT)
    assert colored != plain
    assert printed.plain(colored) == plain


def test_no_line_is_wider_than_the_page_but_for_words_that_are(recording, printed):
    for width in (40, 60, 80):
        text = findings_part(printed(recording, width, verdict=VERDICT))
        assert max(map(len, text.split("\n"))) <= width


def test_long_path_of_an_installed_package_begins_at_its_name(recording, printed):
    path = "/opt/environments/of/the/team/lib/python3.11/site-packages/encoders/models/deep.py"
    far = RelatedLocation(file=path, line=1076, message="made here", source="self.e = E(config)")
    found = replace(FINDINGS[0], related=(far,))
    narrow = printed(recording, 80, verdict=Verdict(findings=(found,), ran=("GS201",)))
    assert re.search(r"^ +--> encoders/models/deep.py:1076$", narrow, re.MULTILINE)
    wide = printed(recording, 140, verdict=Verdict(findings=(found,), ran=("GS201",)))
    assert f"--> {path}:1076\n" in wide


def test_no_findings_are_said_to_be_none(recording, printed):
    text = printed(recording, verdict=Verdict(ran=("GS201", "GS202")))
    assert "\nNo findings: 2 rules ran.\n" in text
    assert "Not judged" not in text
    assert "findings" not in printed(recording)


def test_nothing_is_told_of_gradients_that_no_backward_made(make_transformer, printed):
    recording = make_transformer().recording(
        parameter_stats=(), tensor_stats=(), skipped=(Skipped(what="a", reason="b"),)
    )
    text = printed(recording, verdict=VERDICT)
    assert "error[GS201]" in text and "Not measured\n  a: b\n" in text and "Not applicable" in text
    assert "without gradient" not in text and "Modules" not in text
    assert "26 parameters (26 not measured), 0 tensors, no gradient measured." in " ".join(
        text.split()
    )


def test_hostile_code_and_messages_stay_text(recording, printed):
    source = "x = '\x1b[31m[/bold]'  # \u202e 漢字"
    hostile = replace(
        FINDINGS[0],
        message="[bold]\x1b[1m is not finite",
        location=replace(FINDINGS[0].location, source=source),
        related=(),
    )
    for severity in ("error", "note"):
        found = replace(hostile, severity=severity)
        text = printed(recording, verdict=Verdict(findings=(found,), ran=("GS201",)))
        assert "\x1b" not in text and "\u202e" not in text
        assert r"[bold]\x1b[1m is not finite" in text
        assert r"x = '\x1b[31m[/bold]'  # \u202e 漢字" in text
