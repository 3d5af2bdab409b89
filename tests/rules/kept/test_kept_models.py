"""Rules on single passes that also judge runs find the same in trainings, whole and within 2 MB."""

import inspect
import runpy
import warnings
from pathlib import Path

import pytest
import torch

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.recording.thinning.room import Room
from gradscope.rules.catalogue import RULES
from gradscope.rules.rule import Rule
from tests.rules.kept.kept_runs import outcomes, rewritten
from tests.rules.reach.test_frozen_parameter_in_optimizer import STAYS_FROZEN
from tests.rules.watching import recording_of

SAMPLES = Path(__file__).parents[3] / "sample_models"
OF_CAPTURED_STEPS = (
    *(
        "GS105",
        "GS106",
        "GS110",
        "GS120",
        "GS330",
        "GS724",
        "GS725",
        "GS726",
        "GS727",
        "GS729",
        "GS730",
        "GS731",
        "GS732",
    ),
)
"""Rules on single steps that judge the captured steps of a run, of which a small recording keeps
only some.
"""
CODES = {
    rule.code: SAMPLES / f"{rule.name.replace('-', '_')}.py"
    for rule in RULES
    if (rule.in_run is not Rule.in_run and not rule.needs_run) or rule.code in OF_CAPTURED_STEPS
}
LITTLE = Room(limit=2_000_000, recent=100, chunks=10, around=300)
STEPS = 700
"""More than are kept whole, also if something happens in each."""


def register_hooks(model, batch, step):
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: 0.999 * gradient)


def draw_times(model, batch, step):
    batch["t"] = batch["t"][torch.randperm(len(batch["t"]))]


PER_STEP = {"GS220": draw_times, "GS505": register_hooks}
"""What trainings do before each step to make their mistake, besides what the model does."""


def train_frozen(folder):
    """Train a model of which a function leaves a part frozen."""
    script = folder / "script.py"
    text = STAYS_FROZEN.format(between="net(x).mean().item()", part="head.", steps=STEPS)
    script.write_text(text)
    runpy.run_path(str(script))


def train(code, folder):
    """Train a model with the mistake of a rule: that of its sample, but for GS208."""
    if code == "GS208":
        train_frozen(folder)
        return
    torch.manual_seed(0)
    names = runpy.run_path(str(CODES[code]))
    model, batch = names["build_model"](), names["build_batch"]()
    make = names.get("build_optimizer") or (lambda one: torch.optim.Adam(one.parameters()))
    optimizer = make(model)
    own = names.get("compute_loss")
    takes_batch = own is None and "batch" in inspect.signature(names["loss_fn"]).parameters
    for step in range(STEPS):
        PER_STEP.get(code, lambda *_: None)(model, batch, step)
        optimizer.zero_grad()
        if own is not None:
            loss = own(model, batch)
        else:
            loss = names["loss_fn"](model(batch[0]), batch if takes_batch else batch[1])
        loss.backward()
        optimizer.step()


@pytest.mark.nightly
@pytest.mark.parametrize("code", CODES)
def test_the_findings_in_a_training_do_not_depend_on_what_is_kept(code, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some of the mistakes too
        whole = recording_of(lambda: train(code, tmp_path), tmp_path)
    kept = rewritten(whole, tmp_path / "kept.gradscope", LITTLE)
    assert KeptSteps(kept).missing > STEPS / 5
    found = outcomes(whole)
    assert code in {rule for rule, *_ in found}
    assert outcomes(kept) == found
