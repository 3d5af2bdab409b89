"""Trainings near the thresholds of rules over runs, made without torch."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path

from gradscope.recording.evidence.training import RoundedUpdate
from tests.rules.accumulation.loops.two_players import players
from tests.rules.clipping.clipped_run import BACKWARD as LINE
from tests.rules.clipping.clipped_run import ClippedRun, trained
from tests.rules.watching import recording_of

SICK = [position % 4 > 0 for position in range(20)]
"""Three quarters of the steps of a run, the last among them."""
SHARE = 0.75


def accumulating(is_sick, *, sick=(), others=(), whole=(), source="loss.backward()"):
    """A training whose steps are made of calls of the run, given by name with their numbers."""
    run, weights, optimizer = trained()
    run.sources[LINE] = source
    for bad in is_sick:
        for name, numbers in sick if bad else others:
            _do(run, weights, optimizer, name, numbers)
        for name, numbers in whole:
            _do(run, weights, optimizer, name, numbers)
        run.step(optimizer)
    return run


def _do(run, weights, optimizer, name, numbers):
    match name:
        case "zero":
            run.zero(optimizer)
        case "clip":
            run.clip(weights, **numbers)
        case "backward":
            run.backward(weights, **numbers)


def one(name, **numbers):
    return (name, numbers)


ZERO, BACKWARD, CLIP = one("zero"), one("backward"), one("clip", max_norm=0.1)
MEAN = one("backward", reduction=1)


def old_gradients():
    """The first step cannot use old ones: of the other twenty, fifteen do."""
    return accumulating([False, *SICK], others=[ZERO], whole=[BACKWARD])


def erased():
    return accumulating(SICK, sick=[ZERO, BACKWARD, ZERO], others=[ZERO, BACKWARD])


def overwritten():
    half = one("backward", divided=2)
    return accumulating(
        SICK, sick=[ZERO, half, ZERO, half], others=[ZERO, half, one("backward", divided=2, line=9)]
    )


def undivided():
    """Of twenty steps, fifteen add up means that nothing divides; five are of one pass."""
    return accumulating(SICK, sick=[ZERO, MEAN, MEAN, MEAN], others=[ZERO, MEAN])


def divided_again():
    """Fifteen of twenty steps are fed by three means that are divided by nine."""
    ninth = one("backward", reduction=1, divided=9)
    return accumulating(SICK, sick=[ZERO, ninth, ninth, ninth], others=[ZERO, MEAN])


def of_unequal_lengths():
    """Fifteen of twenty windows have three passes, the others two."""
    return accumulating(SICK, sick=[ZERO, MEAN, MEAN, MEAN], others=[ZERO, MEAN, MEAN])


def uneven():
    """Micro-batches of 4 and of 12 rows, whose mean is 8: a row of the first weighs twice."""
    passes = [one("backward", reduction=1, rows=rows) for rows in (4, 12)]
    return accumulating([True] * 8, whole=[ZERO, *passes])


def without_gradient():
    return accumulating(SICK, sick=[ZERO], others=[ZERO, BACKWARD])


def ceasing():
    """Twenty steps, in the last ten of which another model gets the gradients."""
    run = ClippedRun()
    model, copy = run.model("model", 2), run.model("copy", 2)
    optimizer = run.optimizer(model, line=3)
    for step in range(20):
        run.zero(optimizer, line=10)
        run.backward(model if step < 10 else copy, line=11)
        run.step(optimizer, line=12)
    return run


def used_again():
    return accumulating(SICK, others=[ZERO, BACKWARD])


def never_stepping(passes, zeros):
    run, weights, optimizer = trained()
    for position in range(passes):
        if passes - position <= zeros:
            run.zero(optimizer)
        run.backward(weights)
    return run


def beside_another(steps):
    run = ClippedRun()
    weights, head = run.model("model", 2), run.model("head", 2)
    first, _ = run.optimizer(weights), run.optimizer(head, name="of_head")
    for _ in range(steps):
        run.backward((*weights, *head))
        run.step(first)
        run.zero((*weights, *head))
    return run


def repeated():
    again = one("backward", again=1)
    return accumulating(SICK, sick=[ZERO, BACKWARD, again], others=[ZERO, BACKWARD])


def keeping(rises, steps):
    """A total that kept more in each of so many searches, the last so many steps on."""
    run, weights, optimizer = trained()
    for position in range(rises):
        run.zero(optimizer)
        run.backward(weights, nodes=12, older=0)
        if position >= 2:
            at = steps if position == rises - 1 else position
            run.event("kept", 13, subject="total", nodes=6 * position, nodes_before=6, steps=at)
        run.step(optimizer)
    return run


class Leaking:
    """A generator and a discriminator in five steps, each of which uses the other's gradients."""

    def recording(self):
        with tempfile.TemporaryDirectory() as folder:
            return recording_of(lambda: players("leaking", 5), Path(folder))


def growing(passes):
    run, weights, optimizer = trained()
    for position in range(passes):
        run.zero(optimizer)
        run.backward(weights, nodes=10 + position, older=int(position > 0))
        run.step(optimizer)
    return run


def in_eval_mode():
    run, weights, optimizer = trained()
    for bad in SICK:
        run.zero(optimizer)
        if bad:
            run.event("mode", 20, subject="model", eval=1, dropout=1, batchnorm=0)
        run.backward(weights)
        run.step(optimizer)
    return run


def divided_in_vain():
    half = one("backward", reduction=1, divided=2)
    source = "(loss / accumulation_steps).backward()"
    return accumulating(SICK, sick=[ZERO, half], others=[ZERO, MEAN], source=source)


def made_anew(times, steps_each):
    run = ClippedRun()
    weights = run.model("model", 2)
    for _ in range(times + 1):
        optimizer = run.optimizer(weights, "Adam")
        for _ in range(steps_each):
            run.zero(optimizer)
            run.backward(weights)
            run.step(optimizer)
    return run


def clipped_late():
    run, weights, optimizer = trained()
    for bad in SICK:
        run.zero(optimizer)
        run.backward(weights)
        for is_behind in (False, True):
            if is_behind:
                run.step(optimizer)
            if bad == is_behind:
                run.clip(weights, 0.1)
    run.zero(optimizer)
    return run


def clipped_early():
    return accumulating(SICK, sick=[ZERO, CLIP, BACKWARD], others=[ZERO, BACKWARD, CLIP])


def clipped_while_scaled(*, scale=65536.0, max_norm=1.0, is_sick=SICK):
    run, weights, optimizer = trained()
    for bad in is_sick:
        run.zero(optimizer)
        run.backward(weights, size=scale if bad else 1.0, scaled=1)
        run.clip(weights, max_norm, scaled=bad)
        run.event("scaler-step", 30, optimizer=optimizer, skipped=0, found_inf=0)
        run.step(optimizer)
        run.event("scaler-update", 31, scale_before=scale, scale_after=scale)
    return run


def clipped_in_part(*, outside=1, inside=3, is_sick=SICK):
    run = ClippedRun()
    part, rest = run.model("encoder", inside), run.model("decoder", outside)
    optimizer = run.optimizer((*part, *rest))
    for bad in is_sick:
        run.zero(optimizer)
        run.backward((*part, *rest))
        run.clip(part if bad else (*part, *rest), 0.1)
        run.step(optimizer)
    return run


def clipped_with_nothing_left():
    run, weights, optimizer = trained()
    for bad in SICK:
        run.zero(optimizer)
        run.backward(weights)
        run.clip(() if bad else weights, 0.1, exhausted=int(bad))
        run.step(optimizer)
    return run


def clipped_inside():
    inside = [ZERO, BACKWARD, CLIP, BACKWARD, CLIP]
    return accumulating(SICK, sick=inside, others=[ZERO, BACKWARD, CLIP])


def skipping(is_sick):
    """The first step is made, which ends the search for a scale."""
    run, weights, optimizer = trained()
    for bad in is_sick:
        run.zero(optimizer)
        run.backward(weights, scaled=1)
        run.event("scaler-step", 30, optimizer=optimizer, skipped=int(bad), found_inf=int(bad))
        if not bad:
            run.step(optimizer)
    return run


class Rounded(ClippedRun):
    """A training of which three quarters of the elements are as they were after each step."""

    def recording(self):
        records = [
            RoundedUpdate(step=step, optimizer=0, parameter=0, moving=100, unchanged=75)
            for step in range(3)
        ]
        recording = super().recording()
        return replace(recording, evidence=(*recording.evidence, *records))


def rounded():
    run = Rounded()
    weights = run.model("model", 1)
    optimizer = run.optimizer(weights, "AdamW")
    for _ in range(3):
        run.zero(optimizer)
        run.backward(weights)
        run.step(optimizer)
    return run


SPIKE = 40
"""The step at which it stands."""


def spiking(sizes, *, loss_after=5.0, again=()):
    """One parameter, whose norm is the gradient's; the loss goes up at the spike."""
    run, weights, optimizer = trained(parameters=1)
    for step, size in enumerate(sizes):
        run.zero(optimizer)
        loss = 1.0 if step <= SPIKE else loss_after
        run.backward(weights, size=32.0 if step in again else size, loss=loss)
        run.step(optimizer)
    return run


def spike(norm, *, before=(), steps=60):
    sizes = [1.0] * steps
    for position, size in before:
        sizes[position] = size
    sizes[SPIKE] = norm
    return sizes


def wavering():
    """Norms of 1/2, 1 and 2 in turn: the median deviation is log(2), and the spike log(64)."""
    return [*([0.5, 1.0, 2.0] * 14)[:SPIKE], 64.0, *[1.0] * 19]


DEVIATIONS = math.log(64) / (1.4826 * math.log(2))
"""Of that spike, above the median norm of 1."""


def cut_to(limit=0.01, is_sick=SICK, class_name="SGD"):
    """Norms of two where the clip is sick, and of next to nothing else."""
    run, weights, optimizer = trained(class_name=class_name)
    for bad in is_sick:
        run.zero(optimizer)
        run.backward(weights, size=1.0 if bad else 1e-6)
        run.clip(weights, limit)
        run.step(optimizer)
    return run


def turned(cosine=0.75, steps=20):
    run, weights, optimizer = trained()
    for _ in range(steps):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, 0.1, by_value=True, norm=2.0, norm_after=1.0, cosine=cosine)
        run.step(optimizer)
    return run
