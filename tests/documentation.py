"""Keeps what README.md and docs/ show true: `python tests/documentation.py` pastes it again.

Every ```console block holds one command behind `$ ` and what it prints, 100 columns wide. Behind
`| head -n N` it shows the first N lines, behind `| grep -A N WORD` the line with WORD and N more.
The blocks of a page run in order, in a folder of their own that has sample_models/ and
pyproject.toml. A ```python block that begins with `# model.py` writes that file there, and a
```diff block changes one: the blocks below show the result. The rules stand in a table between two
comments.
"""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from gradscope.report.rule_manual import render_table
from gradscope.rules.catalogue import RULES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RULES_PAGE = DOCS / "commands" / "rule.md"
NOT_OURS = ("_build", "rules")
"""Folders in docs/ that the build writes."""

CONSOLE = r"```console\n\$ (?P<command>(?:gradscope|pytest|sqlite3) [^\n]*)\n(?P<output>.*?)```"
DIFF = r"```diff\n--- (?P<file>\S+)\n\+\+\+ \S+\n(?P<hunks>.*?)```"
SOURCE = r"```python\n(?P<text># (?P<written>\w+\.py)\n.*?)```"
BLOCK = re.compile(f"{CONSOLE}|{DIFF}|{SOURCE}", re.DOTALL)
TABLE = re.compile(r"(?<=<!-- rules -->\n).*?(?=\n<!-- end of rules -->)", re.DOTALL)

Run = Callable[..., subprocess.CompletedProcess[str]]
"""Called as `run(folder, program, *arguments)`."""
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


def pages() -> list[Path]:
    """Return README.md and the pages of docs/ that are written by hand."""
    found = (path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in NOT_OURS)
    return [ROOT / "README.md", *sorted(found)]


def rule_table() -> str:
    """Return every rule, a line each."""
    return render_table(RULES, "markdown", Console())


def make_checkout(folder: Path) -> None:
    """Copy what the commands of a page need into a folder."""
    shutil.copytree(
        ROOT / "sample_models",
        folder / "sample_models",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(ROOT / "pyproject.toml", folder)


def environment() -> dict[str, str]:
    """Return the variables of a terminal of 100 columns without colour."""
    # pytest shortens its summary where nobody reads it in CI.
    kept = {name: value for name, value in os.environ.items() if name not in OF_CI}
    return {**kept, "PYTHONPATH": str(ROOT), **ENVIRONMENT}


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", program, *PROGRAMS[program], *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def query(path: Path, statement: str) -> str:
    """Return what `sqlite3 -header` prints in its default mode, `list`."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as base:
        cursor = base.execute(statement)
        rows = [[column[0] for column in cursor.description], *cursor]
    base.close()
    return "\n".join("|".join("" if cell is None else str(cell) for cell in row) for row in rows)


def output_of(command: str, folder: Path, run: Run = run) -> str:
    """Return what a command prints in a terminal of 100 columns without colour."""
    command, _, filter_ = command.partition(" | ")
    command, joined, _ = command.partition(" 2>&1")
    program, *arguments = shlex.split(command)
    if program == "sqlite3":
        header, file, statement = arguments
        assert header == "-header", command
        text = query(folder / file, statement)
    else:
        done = run(folder, program, *arguments)
        text = done.stdout + (done.stderr if joined else "")
        assert text and done.returncode in (0, 1, 2), done.stderr
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(filtered(lines, filter_)) + "\n"


def filtered(lines: list[str], command: str) -> list[str]:
    """Return the lines that a command behind a pipe lets through."""
    match command.split():
        case []:
            return lines
        case "head", "-n", number:
            return lines[: int(number)]
        case "grep", "-A", number, word:
            first = next(index for index, line in enumerate(lines) if word in line)
            return lines[first : first + int(number) + 1]
    raise ValueError(f"what is {command!r}?")


def apply(file: Path, hunks: str) -> None:
    """Change a file as a diff says; the lines of each hunk have to occur in it exactly once."""
    text = file.read_text(encoding="utf-8")
    for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(before) == 1, f"{file.name} has these lines not once:\n{before}"
        text = text.replace(before, after)
    file.write_text(text, encoding="utf-8")


def printed(page: Path, run: Run = run) -> Iterator[tuple[str, str, str]]:
    """Run a page's blocks in order; yield each command, its output in the page, and the real one.

    Between them, write and change files as the page says.
    """
    with TemporaryDirectory(prefix="checkout-") as name:
        folder = Path(name)
        make_checkout(folder)
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block["file"]:
                apply(folder / block["file"], block["hunks"])
            elif block["written"]:
                (folder / block["written"]).write_text(block["text"], encoding="utf-8")
            else:
                real = output_of(block["command"], folder, run)
                yield block["command"], block["output"], real


def rewrite(page: Path) -> None:
    """Paste the real output into every block of a page, and the rules into their table."""
    text = page.read_text(encoding="utf-8")
    real = (output for _, _, output in list(printed(page)))

    def paste(block: re.Match[str]) -> str:
        return (
            f"```console\n$ {block['command']}\n{next(real)}```" if block["command"] else block[0]
        )

    text = TABLE.sub(lambda _: rule_table(), BLOCK.sub(paste, text))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for given in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        rewrite(given)
