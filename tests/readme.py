"""Keeps what the README shows true: `python tests/readme.py` pastes the real output again.

Every ```console block holds one command behind `$ ` and what it prints, 100 columns wide.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ (?P<command>gradscope[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def blocks() -> Iterator[tuple[str, str]]:
    """Yield each command that the README shows, with the output it shows."""
    for match in BLOCK.finditer(README.read_text(encoding="utf-8")):
        yield match["command"], match["output"]


def output_of(command: str) -> str:
    """Return what a command prints on stdout in a terminal of 100 columns without colour."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    program, *arguments = command.split()
    assert program == "gradscope"
    done = subprocess.run(
        [sys.executable, "-m", "gradscope", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines()) + "\n"


def rewrite() -> None:
    """Paste the real output into every block."""
    text = README.read_text(encoding="utf-8")

    def paste(match: re.Match[str]) -> str:
        return f"```console\n$ {match['command']}\n{output_of(match['command'])}```"

    README.write_text(BLOCK.sub(paste, text), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
