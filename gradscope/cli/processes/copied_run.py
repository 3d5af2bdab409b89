"""Runs a recorded script again, as it is and edited, in a copy of its folder."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from gradscope.analysis.report import Report
from gradscope.cli.progress import erase_progress
from gradscope.errors import GradscopeError
from gradscope.fixes.proposing import Proposals
from gradscope.phrasing import counted
from gradscope.progress import tell_stage
from gradscope.recording.finding import Edit
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings

_LEFT_OUT = ("*.gradscope", ".git", ".hg", ".mypy_cache", ".venv", "__pycache__", "venv")
_MOST_BYTES = 2**30
"""A folder of more than a gibibyte is not copied: it holds data."""


class CopiedRun(AbstractContextManager["CopiedRun"]):
    """The first steps of a recorded script, in a copy of its folder that is made for each run.

    Args:
        report: The recorded training.
        settings: Settings of the rules.
        steps: Number of optimizer steps.
        is_free: Whether the script may reach outside the copy.

    Raises:
        GradscopeError: The script cannot be run again, or reaches outside the copy.
    """

    def __init__(self, report: Report, settings: Settings, steps: int, *, is_free: bool) -> None:
        self._settings, self._steps, self._is_free = settings, steps, is_free
        self._root = Path(report.target.root)
        self._words = _script_words(report, self._root)
        self._temporary = TemporaryDirectory(prefix="gradscope-")
        # The temporary folder may be a link, and frames name files by resolved paths.
        self._base = Path(self._temporary.name).resolve()
        self._copy = self._base / self._root.name

    def __enter__(self) -> "CopiedRun":
        try:
            seen = self._run({}, "the script as it is")
            if isinstance(seen, str):
                raise GradscopeError(f"the script cannot be run again: {seen}")
        except BaseException:
            # `__exit__` is not called if this method raises.
            self._temporary.cleanup()
            raise
        self.before = seen
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def run(self, proposals: Proposals, trials: Sequence[Sequence[Edit]]) -> list[Report | str]:
        """Return for each trial the report of the edited script, or why there is none."""
        return [
            self._run(proposals.edited(edits), f"fix {number} of {len(trials)}")
            for number, edits in enumerate(trials, 1)
        ]

    def original(self, file: str) -> str:
        """Return the file that a file of the copy is of."""
        return str(self._root / Path(file).relative_to(self._copy))

    def _run(self, texts: dict[str, str], what: str) -> Report | str:
        outside = [file for file in texts if not Path(file).is_relative_to(self._copy)]
        if outside:
            return f"{outside[0]} is not in the folder of the script"
        self._make_copy()
        for file, text in texts.items():
            encoding = _encoding(Path(file))
            Path(file).write_bytes(text.encode(encoding))
        tell_stage(f"running {counted(self._steps, 'step')} of {what}")
        recording = self._base / "run.gradscope"
        recording.unlink(missing_ok=True)
        code, output = self._watched(recording)
        self._check_confined()
        if not recording.exists():
            # A traceback ends with the exception.
            last = (output.strip().splitlines() or [f"exit code {code}"])[-1]
            return last
        seen = load_recording(recording)
        return Report.from_recording(seen, judge(seen, self._settings))

    def _make_copy(self) -> None:
        if self._copy.exists():
            shutil.rmtree(self._copy)
        size = sum(_sizes(self._root))
        if size > _MOST_BYTES:
            raise GradscopeError(
                f"{str(self._root)!r} holds {size / 2**30:.1f} GiB, too much to copy",
                help="move data out of the folder",
            )
        shutil.copytree(self._root, self._copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))

    def _watched(self, recording: Path) -> tuple[int, str]:
        """Run the script in the copy under `gradscope run`; return its exit code and stderr."""
        line = [
            "gradscope", "run", "--save", str(recording), "--force", "--quiet",
            "--budget", "none", "--stop-after", str(self._steps), *self._words,
        ]  # fmt: skip
        confined = (
            ""
            if self._is_free
            else "from pathlib import Path; from gradscope.launch.confinement import confine; "
            f"confine([Path({str(self._base)!r})], Path({str(self._log)!r})); "
        )
        # The child imports from the same folders, with the copy in place of the script's own; `-P`
        # keeps its working directory from coming first.
        start = (
            f"import sys; sys.path[:] = {self._import_paths()!r}; sys.argv = {line!r}; "
            f"{confined}from gradscope.cli import main; main()"
        )
        temporary = self._base / "tmp"
        temporary.mkdir(exist_ok=True)
        # Sets of strings have one order in all runs, unless the user has set another seed.
        environment = {
            "PYTHONHASHSEED": "0",
            **os.environ,
            # Bytecode of an edit counts as current for the next one of equal length in the same
            # second.
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(temporary),
        }
        erase_progress()
        done = subprocess.run(
            [sys.executable, "-P", "-c", start],
            cwd=self._copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            # Scripts may print what is not in the locale's encoding.
            errors="replace",
        )
        return done.returncode, done.stderr

    @property
    def _log(self) -> Path:
        return self._base / "prevented.txt"

    def _import_paths(self) -> list[str]:
        """Return the import path, in which the copy stands for the folder."""
        found = []
        for entry in sys.path:
            path = Path(entry or ".").resolve()
            is_own = path.is_relative_to(self._root) and "site-packages" not in path.parts
            found.append(str(self._copy / path.relative_to(self._root)) if is_own else entry)
        return found

    def _check_confined(self) -> None:
        """Raise an error if the script was prevented from something.

        Raises:
            GradscopeError: It was.
        """
        prevented = self._log.read_text().splitlines() if self._log.exists() else []
        if prevented:
            raise GradscopeError(
                f"the script {prevented[0]}, outside the copy of its folder",
                help="--yes allows it",
            )


def _sizes(root: Path) -> Iterator[int]:
    for folder, folders, files in os.walk(root):
        folders[:] = [one for one in folders if one not in _LEFT_OUT]
        for name in files:
            path = Path(folder, name)
            yield path.stat().st_size if path.is_file() else 0


def _encoding(file: Path) -> str:
    from gradscope.source_edits.source_files import read_file

    read = read_file(file)
    return "utf-8" if read is None else read.encoding


def _script_words(report: Report, root: Path) -> list[str]:
    """Return the script and its arguments from the command of a recording.

    Raises:
        GradscopeError: `gradscope run` did not make it, or not in one process and its folder.
    """
    from gradscope.cli.run.command import run
    from gradscope.cli.shell.plain_parser import parsed

    words = shlex.split(report.command)
    values = parsed(run, words[2:], is_interspersed=False) if words[1:2] == ["run"] else None
    if report.ranks:
        raise GradscopeError(
            "--verify runs a script of one process, and the recording is of several ranks",
            help="apply the diff, and run the ranks again",
        )
    if values is None or values["nproc"] is not None:
        raise GradscopeError(
            "--verify runs a script that gradscope run recorded in one process",
            cause=f"the recording was made by: {report.command}",
        )
    script, is_module = str(values["script"]), bool(values["module"])
    path = (root / script).resolve()
    if not root.is_dir() or not (is_module or path.is_relative_to(root.resolve())):
        raise GradscopeError(
            f"--verify copies {str(root)!r}, which does not hold {script!r}",
            help="record the script from its own folder",
        )
    named = script if is_module else str(path.relative_to(root.resolve()))
    arguments = values["args"]
    assert isinstance(arguments, list | None)
    return [*(["-m"] if is_module else []), named, *map(str, arguments or ())]
