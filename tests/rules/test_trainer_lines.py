"""Findings about a trainer's work point at the user's lines."""

import dataclasses
import textwrap

import pytest

from gradscope.capture.training.trainer_arguments import trainer_arguments
from gradscope.recording.evidence.training import LibraryCall, TrainerArgument
from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.finding_origins import at_users_lines
from tests.recording.recordings import small

LIBRARY, CALL, ARGUMENT, OWN = (
    Site(file=f"/{file}", line=line, function="f", source=source)
    for file, line, source in (
        ("lib/site-packages/trainer.py", 900, "optimizer.step()"),
        ("home/train.py", 9, "trainer.fit(net)"),
        ("home/train.py", 5, "learning_rate=9.0,"),
        ("home/net.py", 3, "return torch.optim.SGD(self.parameters(), lr=9.0)"),
    )
)
CALLED = LibraryCall(site=0, caller=1)
GIVEN = TrainerArgument(kind="learning rate", site=2)


def moved(location, *evidence, kind="learning rate"):
    recording = dataclasses.replace(
        small(), sites=(LIBRARY, CALL, ARGUMENT, OWN), evidence=evidence
    )
    finding = Finding(
        rule="GS108",
        name="update-too-large",
        severity="error",
        message="too large",
        location=location,
        remedy="lower it",
        fingerprint="f",
    )
    (found,) = at_users_lines([finding], RuleContext(recording), {"GS108": kind})
    return found.location, [one.line for one in found.related]


@pytest.mark.parametrize(
    ("location", "evidence", "kind", "expected"),
    [
        (LIBRARY, (CALLED, GIVEN), "learning rate", (ARGUMENT, [9, 900])),
        (CALL, (CALLED, GIVEN), "learning rate", (ARGUMENT, [9])),
        (OWN, (CALLED, GIVEN), "learning rate", (OWN, [5])),
        (ARGUMENT, (CALLED, GIVEN), "learning rate", (ARGUMENT, [])),
        (LIBRARY, (CALLED, GIVEN), "precision", (CALL, [900])),
        (LIBRARY, (CALLED,), "learning rate", (CALL, [900])),
        (OWN, (CALLED, GIVEN), None, (OWN, [])),
        (LIBRARY, (GIVEN,), "learning rate", (LIBRARY, [])),
        (None, (CALLED, GIVEN), "learning rate", (None, [])),
    ],
)
def test_location_is_the_argument_else_the_call_of_the_trainer(location, evidence, kind, expected):
    assert moved(location, *evidence, kind=kind) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L.Trainer(precision='bf16-mixed')", {("precision", 1)}),
        ("TrainingArguments(\n  bf16=True,\n  fp16=False)", {("precision", 2)}),
        ("SFTConfig(learning_rate=rate)", {("learning rate", 1)}),
        ("Accelerator(gradient_accumulation_steps=4)", {("accumulation", 1)}),
        ("Trainer(accumulate_grad_batches=4)", {("accumulation", 1)}),
        ("torch.set_printoptions(precision=4)", set()),
        ("L.Trainer(precision=None)", set()),
        ("L.Trainer(precision=16)\nL.Trainer(precision=32)", set()),
        ("def f():\n  return Trainer(precision=16)", {("precision", 2)}),
        ("not python", set()),
    ],
)  # fmt: skip
def test_arguments_are_those_of_the_one_trainer_of_a_file(tmp_path, text, expected):
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text))
    assert {(kind, line.number) for kind, line in trainer_arguments(str(file))} == expected
