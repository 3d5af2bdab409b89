"""What a display shows, line by line, of recordings of loops as users write them."""

import io
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gradscope.analysis.live_run import KINDS, LiveRun
from gradscope.recording.growing import GrowingRecording
from gradscope.recording.store import save_recording
from gradscope.report.live import Judged, frame
from gradscope.report.page import Page
from gradscope.rules.engine import judge
from tests.report.run.conftest import accumulation, adversarial, network, plain
from tests.rules.accumulation.runs import Run


def run_of(recording, name="train.py"):
    run = LiveRun(name)
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.gradscope")
        save_recording(replace(recording, finished=False), path)
        run.add(GrowingRecording(path, KINDS).read())
    return run


def page_of(width, encoding="utf-8", root=""):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Page.of(Console(file=stream, width=width, markup=False, emoji=False), root)


def lines_of(run, width=80, height=20, found=None, encoding="utf-8", **options):
    judged = None if found is None else Judged(findings=found, steps=run.steps)
    return [
        line.plain
        for line in frame(run, judged, page_of(width, encoding, run.root), height, **options)
    ]


def line_of(lines, label):
    (line,) = (line for line in lines if line.startswith(label))
    return line


def sick(steps=30, name="model"):
    run = Run()
    weights = run.model(name, 4)
    adam = run.optimizer(weights, "AdamW", line=3)
    for turn in range(steps):
        run.backward(weights, line=10, loss=2.0 * 0.9**turn)
        run.event("clip-norm", 12, max_norm=1.0, norm=0.5 + turn % 2, parameters=4, fresh=4)
        run.step(adam, line=13)
    return run.recording()


SICK = sick()
FOUND = judge(SICK).findings


def test_run_that_has_not_stepped_says_what_it_waits_for():
    (line,) = lines_of(LiveRun("train.py"))
    assert line.startswith("gradscope run train.py · waiting for the first optimizer step ─")


def test_lines_of_a_plain_loop():
    lines = lines_of(run_of(plain(steps=3)), width=80)
    assert lines[0].startswith("gradscope run train.py · 3 steps · ")
    assert lines[0].endswith("─")
    assert line_of(lines, "loss").split() == ["loss", "0.333", "█▃▁", "from", "1.00"]
    assert line_of(lines, "learning rate").split() == ["learning", "rate", "0.100"]
    assert line_of(lines, "layers").startswith("layers  gradient norms of step 2, ▁ ")


def test_share_of_clipped_steps_and_the_norms_that_clipping_found():
    line = line_of(lines_of(run_of(SICK), width=80), "before clip")
    assert line.split()[2] == "1.50"
    assert line.endswith("  50 % clipped to 1.00")
    assert len(set(line.split()[3])) == 2
    narrow = line_of(lines_of(run_of(SICK), width=40), "before clip")
    assert narrow.split() == ["before", "clip", "1.50", "50", "%", "clipped"]


def test_clipping_by_value_has_no_norm():
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for _ in range(4):
        run.backward(weights, line=5)
        run.event("clip-value", 6, clip_value=0.5, parameters=2, fresh=2)
        run.step(sgd, line=7)
    lines = lines_of(run_of(run.recording()))
    assert line_of(lines, "clip").split() == ["clip", "elements", "to", "0.500"]


def test_optimizers_that_take_turns_have_lines_of_their_own():
    lines = lines_of(run_of(adversarial()), height=30)
    titles = [line for line in lines if "Adam(" in line]
    assert titles == ["opt_c Adam(lr=0.1)  20 steps", "opt_g Adam(lr=0.1)  10 steps"]
    assert "… 1 more optimizer" in lines
    assert sum(line.startswith("loss") for line in lines) == 2


def test_scaler_shows_its_scale_and_what_it_skipped():
    recording = accumulation()
    assert line_of(lines_of(run_of(recording)), "loss scale").split() == ["loss", "scale", "1,024"]
    events = tuple(
        replace(event, kind="scaler-step", numbers=(("skipped", 1.0),))
        if event.kind == "unscale" and event.step < 2
        else event
        for event in recording.events
    )
    lines = lines_of(run_of(replace(recording, events=events)))
    assert line_of(lines, "loss scale").endswith("2 steps skipped")


def test_layers_are_compared_on_one_scale_with_what_is_broken_or_missing():
    values = {0: 1.0, 1: 1e-4, 2: math.nan, 3: 0.0, 4: None}
    recording = network(3, lambda step, block: values[block], blocks=5)
    lines = lines_of(run_of(recording), height=30)
    assert line_of(lines, "layers") == "layers  gradient norms of step 2, ▁ 0.000100 to █ 1.00"
    assert [line.split()[2:] for line in lines if " Block" in line] == [
        ["█", "1.00"], ["▁", "0.000100"], ["!", "nan"], ["0", "0"], ["—"],
    ]  # fmt: skip


def test_repeated_layers_are_one_row_where_there_is_no_room():
    run = run_of(network(2, lambda step, block: 1.0, blocks=40))
    lines = lines_of(run, height=12)
    assert any("net.blocks.[0-39] ×40 " in line for line in lines)  # noqa: RUF001


def test_findings_come_with_their_line_and_the_words_that_fit():
    lines = lines_of(run_of(SICK), found=FOUND, height=12)
    start = lines.index("1 error  after 30 steps")
    assert lines[start + 1].startswith("  error[GS301] train.py:10 missing-zero-grad: backward()")
    assert len(lines) == start + 4  # all of the message
    short = lines_of(run_of(SICK), found=FOUND, height=7)
    assert short[-2] == "1 error  after 30 steps"
    assert short[-1].endswith("…")
    assert "no findings  after 30 steps" in lines_of(run_of(SICK), found=())


def test_more_findings_than_lines_are_counted():
    lines = lines_of(run_of(SICK), found=FOUND * 9, height=10)
    assert len(lines) == 10
    assert lines[-1] == "  … 6 more"


def test_steps_that_are_planned_and_the_end_of_the_recording():
    run = run_of(SICK)
    assert " · 30 of 500 steps · " in lines_of(run, planned=500)[0]
    run.is_over = True
    assert " · 30 of 30 steps · recording has stopped ─" in lines_of(run, planned=30)[0]


def test_words_that_do_not_fit_on_the_first_line_are_left_out():
    run = run_of(SICK)
    run.seconds = 4321.0
    whole = lines_of(run, width=80)[0]
    assert " · 30 steps · " in whole
    assert whole.rstrip(" ─").endswith(" · 1 h 12 min")
    assert lines_of(run, width=24)[0] == "train.py · 30 steps ────"


def test_ascii_where_the_terminal_holds_no_more():
    text = "\n".join(lines_of(run_of(SICK), found=FOUND, encoding="ascii"))
    assert text.isascii()
    assert "gradscope run train.py | 30 steps |" in text


def test_growing_run_is_the_same_as_one_that_is_read_at_once(tmp_path):
    recording = adversarial()
    path, run = tmp_path / "run.gradscope", LiveRun("train.py")
    growing = GrowingRecording(path, KINDS)
    for count in (1, 2, 5, 20, 31, len(recording.steps)):
        part = replace(
            recording,
            finished=False,
            steps=recording.steps[:count],
            events=tuple(event for event in recording.events if event.step < count),
            parameter_stats=tuple(s for s in recording.parameter_stats if s.step < count),
        )
        save_recording(part, path, force=True)
        run.add(growing.read())
    curves = slice(0, 9)
    assert lines_of(run, height=30)[curves] == lines_of(run_of(recording), height=30)[curves]
    assert len(run.layers.steps) == 6


def test_models_that_come_later_are_added(tmp_path):
    recording = network(6, lambda step, block: 1.0 + block)
    path, run = tmp_path / "run.gradscope", LiveRun("train.py")
    growing = GrowingRecording(path, KINDS)
    one = [stat for stat in recording.parameter_stats if stat.parameter == 0 and stat.step < 3]
    for parameters, stats in ((1, one), (3, recording.parameter_stats)):
        part = replace(
            recording, parameters=recording.parameters[:parameters], parameter_stats=tuple(stats)
        )
        save_recording(part, path, force=True)
        run.add(growing.read())
    blocks = [line.split()[2:] for line in lines_of(run, height=30) if " Block" in line]
    assert [len(strip) for strip, *_ in blocks[:1]] == [2]
    assert len(blocks) == 3


RUNS = [
    run_of(SICK),
    run_of(adversarial()),
    run_of(network(30, lambda step, block: [0.0, math.nan, math.inf, 1e-30, None][block], 5)),
    run_of(sick(name="名前.\x1b[31m")),
    LiveRun("a" * 300),
]


@given(
    st.sampled_from(RUNS),
    st.integers(1, 200),
    st.integers(0, 40),
    st.sampled_from([None, (), FOUND, FOUND * 5]),
    st.sampled_from(["utf-8", "ascii"]),
)
def test_any_terminal_holds_it(run, width, height, found, encoding):
    judged = None if found is None else Judged(findings=found, steps=run.steps)
    lines = frame(run, judged, page_of(width, encoding), height)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert line.plain.isprintable()
        assert encoding == "utf-8" or line.plain.isascii()


@pytest.mark.parametrize("width", [40, 80, 140])
def test_strips_stand_below_each_other(width):
    lines = lines_of(run_of(network(200, lambda step, block: 1.0)), width=width, height=30)
    starts = {
        min(line.find(sign) for sign in "▁▂▃▄▅▆▇█" if sign in line)
        for line in lines
        if line.startswith(("loss", "gradient norm")) or " Block" in line
    }
    assert len(starts) == 1
