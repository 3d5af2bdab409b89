"""What a confined process may not do; in a process of its own, as audit hooks stay."""

import os
import subprocess
import sys
from textwrap import dedent

PROGRAM = """
import os, shutil, socket, subprocess, sys
from pathlib import Path
import torch
from gradscope.launch.confinement import confine

inside, outside = Path(sys.argv[1]), Path(sys.argv[2])
(outside / "there").write_text("1")
confine([inside], inside / "prevented.txt")


def attempt(name, action):
    try:
        action()
    except PermissionError as error:
        print(name, "prevented:", error)
    except OSError as error:
        print(name, "failed")
    else:
        print(name, "done")


attempt("write", lambda: (inside / "a").write_text("1"))
attempt("link", lambda: (inside / "link").symlink_to(outside))
attempt("read", lambda: (outside / "there").read_text())
attempt("save", lambda: torch.save(1, inside / "b.pt"))
attempt("device", lambda: open(os.devnull, "w").close())
attempt("write outside", lambda: (outside / "a").write_text("1"))
attempt("write by a link", lambda: (inside / "link" / "a").write_text("1"))
attempt("write upwards", lambda: open(inside / ".." / "outside" / "a", "ab"))
attempt("descriptor", lambda: os.open(outside / "a", os.O_CREAT | os.O_RDWR))
attempt("save outside", lambda: torch.save(1, str(outside / "b.pt")))
attempt("remove", lambda: (outside / "there").unlink())
attempt("rename", lambda: os.rename(inside / "a", outside / "a"))
attempt("mkdir", lambda: (outside / "c").mkdir())
attempt("copy", lambda: shutil.copy(inside / "a", outside / "a"))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", 9), 1))
attempt("program", lambda: subprocess.run(["true"]))
attempt("system", lambda: os.system("true"))
"""


def test_what_reaches_outside_is_prevented_and_noted(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM), inside, outside],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.split(" prevented:")[0:2] for line in done.stdout.splitlines()
                 if " prevented:" in line)  # fmt: skip
    assert list(found) == [
        "write outside", "write by a link", "write upwards", "descriptor", "save outside",
        "remove", "rename", "mkdir", "copy", "connect", "program", "system",
    ]  # fmt: skip
    done_ones = [line.removesuffix(" done") for line in done.stdout.splitlines()
                 if line.endswith(" done")]  # fmt: skip
    assert done_ones == ["write", "link", "read", "save", "device"]
    assert [path.name for path in outside.iterdir()] == ["there"]
    noted = (inside / "prevented.txt").read_text().splitlines()
    assert len(noted) == len(found)
