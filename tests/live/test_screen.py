"""What `gradscope run --live` does to the terminal, with a stand-in for what watches a training."""

import re

import pytest

from tests.launch.conftest import TORCH
from tests.nightly import some_on_push

SHOWN = "import sys, torch\n{before}\ntorch.train({steps})\n{after}\n"
ENDINGS = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('mine')", 1),
    "Ctrl-C": ("raise KeyboardInterrupt", -2),
    "SIGTERM": ("import os; os.kill(os.getpid(), 15)", -15),
    "SIGKILL": ("import os; os.kill(os.getpid(), 9)", -9),
    "os._exit": ("import os; os._exit(4)", 4),
    "exec": ("import os; os.execv('/bin/true', ['true'])", 0),
}


def script(steps=3, before="", after=""):
    """A script that prints, trains, and waits for a line before it goes on to its end."""
    return SHOWN.format(
        before=before,
        steps=steps,
        after=f"print('trained', flush=True)\nsys.stdin.readline()\n{after}",
    )


def test_panel_is_drawn_below_what_the_script_prints(live):
    with live(script(before="print('one')"), "--max-steps", "3") as screen:
        screen.wait(lambda: screen.shows("no findings") and screen.shows("trained"))
        rows = screen.screen.rows
        assert rows[:2] == ["one", "trained"]
        assert not any(rows[2:12])
        top = next(row for row, text in enumerate(rows) if text.startswith("gradscope run"))
        assert [row.partition("  ")[0] for row in rows[top + 1 :]] == [
            "loss", "gradient norm", "learning rate", "layers", "model Net", "no findings",
        ]  # fmt: skip
        screen.send("\n")
    assert screen.code == 0


@pytest.mark.parametrize("ending", some_on_push(ENDINGS, 3))
def test_terminal_is_left_as_it_was_whatever_ends_the_script(live, ending):
    after, code = ENDINGS[ending]
    with live(script(after=f"print('last', flush=True)\n{after}"), "-q") as screen:
        screen.wait(lambda: screen.shows("step") and screen.shows("trained"))
        assert not screen.is_whole
        screen.send("\n")
    assert screen.code == code
    assert screen.is_whole
    assert not screen.screen.cursor.hidden
    assert not screen.shows("gradscope run train.py ·")
    assert screen.shows("last")
    # What comes next stands right below.
    end = screen.screen.cursor
    assert end.x == 0
    assert screen.screen.rows[end.y - 1]
    assert not any(screen.screen.rows[end.y :])


def test_output_of_every_kind_is_kept_in_order(live):
    loop = """
        import os, subprocess, sys, torch
        for turn in range(30):
            torch.train(1)
            print("printed", turn, flush=True)
            os.write(1, f"written {turn}\\n".encode())
            os.write(2, f"told {turn}\\n".encode())
            print(f"\\rbar {turn}", end="", file=sys.stderr, flush=True)
            print(f"\\rbar {turn} done", file=sys.stderr, flush=True)
        subprocess.run(["echo", "by a child"])
    """
    with live(loop, "-q", "--max-steps", "8") as screen:
        pass
    said = [
        f"{word}"
        for turn in range(30)
        for word in (f"printed {turn}", f"written {turn}", f"told {turn}", f"bar {turn} done")
    ]
    text = [line for line in screen.screen.text if not line.startswith("note:")]
    assert text[: len(said) + 1] == [*said, "by a child"]
    assert text[len(said) + 1].startswith("No findings: ")


def test_stdout_in_a_file_has_what_the_script_writes_and_nothing_else(live, tmp_path):
    text = (
        "import torch, sys\nfor turn in range(9):\n    torch.train(1)\n    print(turn, end='\\r')\n"
    )
    with live(text, "-q", stdout=tmp_path / "out") as screen:
        pass
    assert (tmp_path / "out").read_bytes() == b"".join(b"%d\r" % turn for turn in range(9))
    assert b"gradscope run" in screen.written


def test_line_that_was_begun_goes_on_where_it_was(live):
    with live(script(before="print('begun and ', end='', flush=True)"), "-q", lines=12) as screen:
        screen.wait(lambda: screen.shows("begun and trained"))
    assert screen.screen.text[0] == "begun and trained"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "columns, lines", some_on_push([(40, 24), (80, 24), (140, 50), (20, 8), (80, 5), (5, 6)], 3)
)
def test_panel_never_takes_more_than_half_of_the_terminal(live, columns, lines):
    with live(script(), "-q", "--max-steps", "3", columns=columns, lines=lines) as screen:
        screen.wait(lambda: b"trained" in screen.written)
        assert screen.set_aside <= lines // 2
        screen.send("\n")
    assert screen.code == 0


def test_terminal_that_can_do_nothing_is_left_alone(live):
    with live(script(), TERM="dumb", NO_COLOR="1") as screen:
        screen.send("\n")
    assert screen.code == 0
    assert b"\x1b" not in screen.written
    assert screen.written.count(b"note: --live needs a terminal") == 1


def test_stderr_in_a_file_gets_a_note_and_nothing_else(gradscope, write):
    write("torch/__init__.py", TORCH)
    write("train.py", "import torch\ntorch.train(3)\nprint('trained')\n")
    done = gradscope("run", "--live", "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    first, _, rest = done.stderr.partition("\n")
    assert first == "note: --live needs a terminal on stderr: nothing is shown until the end"
    assert rest == gradscope("run", "train.py").stderr.replace("train-2", "train")


def test_without_colours_none_are_written(live):
    with live(script(), "-q", "--max-steps", "3", NO_COLOR="1") as screen:
        screen.wait(lambda: screen.shows("loss"))
        screen.send("\n")
    assert set(re.findall(rb"\x1b\[([\d;]*)m", screen.written)) == {b"0"}


@pytest.mark.nightly
def test_other_ranks_show_nothing(live):
    with live(script(), "-q", RANK="1") as screen:
        screen.send("\n")
    assert b"\x1b" not in screen.written
    with live(script(), "-q", RANK="0") as screen:
        screen.wait(lambda: screen.shows("gradscope run"))
        screen.send("\n")


@pytest.mark.nightly
def test_children_of_the_script_are_its_own(live):
    text = """
        import os, torch
        torch.train(3)
        try:
            os.wait()
        except ChildProcessError:
            print("none")
        if os.fork() == 0:
            torch.train(2)
            print("in the child", flush=True)
            os._exit(0)
        os.wait()
        torch.train(2)
    """
    with live(text, "-q") as screen:
        pass
    assert screen.screen.text[:2] == ["none", "in the child"]


def test_error_of_the_display_ends_it_and_nothing_else(live, tmp_path):
    damage = """
        import glob, torch
        from gradscope.recording.growing import GrowingRecording
        def broken(self): raise RuntimeError("no more of it")
        GrowingRecording.read = broken
        torch.train(3)
        print("trained")
    """
    with live(damage, "-q") as screen:
        pass
    assert screen.code == 0
    told = "note: the live display stopped: RuntimeError: no more of it"
    assert screen.screen.text.count("trained") == 1
    assert [line for line in screen.screen.text if line.startswith("note: nothing")] in ([told], [])


@pytest.mark.nightly
def test_gate_and_limits_work_as_without(live):
    sick = "import torch\ntorch.train(40, zeroed=False)\nprint('to the end')"
    with live(sick, "-q", "--check", "--fail-fast") as screen:
        pass
    assert screen.code == 1
    assert "to the end" not in screen.screen.text
    with live(sick, "-q", "--check", "--max-steps", "12") as screen:
        pass
    assert screen.code == 1
    assert "to the end" in " ".join(screen.screen.text)
    with live(sick, "-q", "--stop-after", "5") as screen:
        pass
    assert (screen.code, "to the end" in screen.screen.text) == (0, False)
