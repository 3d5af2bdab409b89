"""Keeps what the README shows true: `python tests/readme.py` pastes the real output again.

Every ```console block holds one command behind `$ ` and what it prints, 100 columns wide; behind
`| head -n N` the first lines of it. The table of rules stands between two comments.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gradscope.report.rule_manual import markdown_table
from gradscope.rules.catalogue import RULES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(
    r"```console\n\$ (?P<command>(?:gradscope|pytest)[^\n]*)\n(?P<output>.*?)```", re.DOTALL
)

Run = Callable[..., subprocess.CompletedProcess[str]]
OF_CI = ("CI", "BUILD_NUMBER", "PYTEST_XDIST_WORKER")
ENVIRONMENT = {
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}
PROGRAMS = {
    "gradscope": (),
    # Of all the plugins that there may be, ours alone.
    "pytest": ("-p", "gradscope.integrations.pytest_plugin", "-p", "no:cacheprovider"),
}

TABLE = re.compile(r"(?<=<!-- rules -->\n).*?(?=\n<!-- end of rules -->)", re.DOTALL)


def rule_table() -> str:
    """Return every rule, a line each."""
    return markdown_table(RULES)


def blocks() -> Iterator[tuple[str, str]]:
    """Yield each command that the README shows, with the output it shows."""
    for match in BLOCK.finditer(README.read_text(encoding="utf-8")):
        yield match["command"], match["output"]


def environment() -> dict[str, str]:
    """Return the variables of a terminal of 100 columns without colour."""
    # pytest shortens its summary where nobody reads it in CI.
    kept = {name: value for name, value in os.environ.items() if name not in OF_CI}
    return {**kept, **ENVIRONMENT}


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", program, *PROGRAMS[program], *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def output_of(command: str, run: Run = run) -> str:
    """Return what a command prints on stdout in a terminal of 100 columns without colour."""
    command, _, head = command.partition(" | head -n ")
    done = run(*command.split())
    assert done.returncode in (0, 1), done.stderr
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return "\n".join(lines[: int(head) if head else None]) + "\n"


def rewrite() -> None:
    """Paste the real output into every block, and the rules into their table."""
    text = README.read_text(encoding="utf-8")

    def paste(match: re.Match[str]) -> str:
        return f"```console\n$ {match['command']}\n{output_of(match['command'])}```"

    text = TABLE.sub(lambda _: rule_table(), BLOCK.sub(paste, text))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
