"""Lines at the bottom of a terminal, whatever is written above them."""

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.cli.run.live import BottomPanel
from tests.live.terminal import Terminal


@pytest.fixture
def panel_on(terminal):
    made = []

    def make(columns=20, lines=10):
        screen = terminal(columns, lines)
        made.append(BottomPanel(screen.other, "utf-8"))
        return screen, made[-1]

    yield make
    for panel in made:
        panel.close()


def show(screen, panel, *lines):
    panel.show(lines)
    screen.read()


def test_text_scrolls_above_the_panel_and_the_panel_stays(panel_on):
    screen, panel = panel_on()
    screen.write("before\r\n")
    show(screen, panel, "A", "B")
    for turn in range(12):
        screen.write(f"line {turn}\r\n")
    assert screen.screen.rows == [*(f"line {turn}" for turn in range(5, 12)), "", "A", "B"]
    assert screen.screen.scrolled == ["before", *(f"line {turn}" for turn in range(5))]
    show(screen, panel, "C", "D")
    assert screen.screen.rows[-2:] == ["C", "D"]
    panel.close()
    screen.read()
    screen.write("after")
    assert screen.screen.rows == [*(f"line {turn}" for turn in range(5, 12)), "after", "", ""]
    assert screen.is_whole


def test_full_screen_moves_up_to_make_room(panel_on):
    screen, panel = panel_on()
    screen.write("\r\n".join(f"line {turn}" for turn in range(10)))
    show(screen, panel, "A", "B", "C")
    assert screen.screen.rows == [*(f"line {turn}" for turn in range(3, 10)), "A", "B", "C"]
    screen.write("!")
    assert screen.screen.rows[6] == "line 9!"


def test_panel_grows_without_losing_what_stands_above(panel_on):
    screen, panel = panel_on()
    screen.write("\r\n".join(f"line {turn}" for turn in range(10)))
    show(screen, panel, "A")
    show(screen, panel, "A", "B", "C")
    show(screen, panel, "D")
    assert screen.screen.rows == [*(f"line {turn}" for turn in range(3, 10)), "D", "", ""]
    assert screen.screen.scrolled == ["line 0", "line 1", "line 2"]


def test_colours_and_cursor_of_the_script_go_on(panel_on):
    screen, panel = panel_on()
    screen.write("\x1b[1;31mred ")
    show(screen, panel, "\x1b[32mgreen\x1b[0m", "plain")
    screen.write("too")
    row = screen.screen.buffer[0]
    assert {(row[x].fg, row[x].bold) for x in range(7)} == {("red", True)}
    assert {screen.screen.buffer[9][x].fg for x in range(5)} == {"default"}
    assert screen.screen.rows[0] == "red too"


@pytest.mark.parametrize("size", [(30, 16), (12, 10), (20, 7), (40, 40)])
def test_other_size_is_drawn_anew(panel_on, size):
    screen, panel = panel_on()
    screen.write("one\r\ntwo\r\n")
    show(screen, panel, "A", "B", "C")
    screen.resize(*size)
    show(screen, panel, "D", "E", "F")
    assert [row for row in screen.screen.rows if row] == ["one", "two", "D", "E", "F"]
    assert screen.screen.rows[-3:] == ["D", "E", "F"]
    for turn in range(50):
        screen.write(f"line {turn}\r\n")
    assert screen.screen.rows[-5:] == ["line 49", "", "D", "E", "F"]


def test_program_that_takes_the_whole_screen_gets_the_panel_again(panel_on):
    screen, panel = panel_on()
    show(screen, panel, "A")
    screen.write("\x1b[r\x1b[2J\x1b[Hfull")
    show(screen, panel, "B")
    assert screen.screen.rows == ["full", *[""] * 8, "B"]
    assert not screen.is_whole


def test_terminal_that_is_too_small_has_no_room(panel_on):
    assert panel_on(80, 5)[1].room.lines == 0
    assert panel_on(80, 6)[1].room == (79, 3)
    screen, panel = panel_on(80, 5)
    screen.write("one\r\n")
    show(screen, panel)
    screen.write("two\r\n")
    assert b"\x1b" not in screen.written
    screen.resize(80, 12)
    show(screen, panel, "A")
    screen.resize(80, 4)
    show(screen, panel)
    assert screen.is_whole
    assert "A" not in screen.screen.text


KILLED = """
import os, sys, time
from gradscope.cli.run.live import BottomPanel
panel = BottomPanel(1, "utf-8")
panel.show(["A", "B"])
if "forks" in sys.argv:
    os.fork()
os.write(1, b"ready")
time.sleep(60)
"""


@pytest.mark.parametrize("way", ["alone", "forks"])
def test_killed_process_leaves_the_terminal_whole(terminal, way):
    screen = terminal(20, 10)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, way], stdout=screen.other, start_new_session=True
    )
    screen.wait(lambda: screen.written.count(b"ready") == (2 if way == "forks" else 1))
    assert screen.screen.rows[-2:] == ["A", "B"]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    screen.wait(lambda: screen.is_whole, 10)
    assert not any(screen.screen.rows[1:])
    if way == "forks":
        os.killpg(process.pid, signal.SIGKILL)


def test_closing_is_final_and_the_guard_says_nothing(panel_on):
    screen, panel = panel_on()
    show(screen, panel, "A")
    panel.close()
    panel.close()
    screen.read()
    done = screen.written
    time.sleep(0.2)
    screen.read()
    assert screen.written == done


@given(
    st.tuples(st.integers(10, 60), st.integers(6, 24)),
    st.lists(
        st.one_of(
            st.integers(0, 12).map(lambda count: ("show", count)),
            st.integers(1, 8).map(lambda count: ("print", count)),
        ),
        max_size=20,
    ),
)
def test_nothing_is_lost_whatever_comes_in_between(size, acts):
    screen = Terminal(*size)
    panel = BottomPanel(screen.other, "utf-8")
    said = []
    for act, count in acts:
        if act == "show":
            panel.show([f"panel {row}" for row in range(min(count, panel.room.lines))])
            continue
        for _ in range(count):
            said.append(f"line {len(said)}")
            screen.write(f"{said[-1]}\r\n")
    panel.close()
    screen.read()
    assert screen.screen.text == said
    screen.close()
