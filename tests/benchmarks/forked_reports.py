"""Reports of gradscope on programs, from processes that have imported torch."""

import json
import os
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

from programs import Program

from tests.forked import ForkedCommands

_ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
_MODULES = (
    "torch",
    "torch._dynamo",
    "torch.utils.checkpoint",
    "torch.utils.data",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "gradscope.cli.inspect",
    "gradscope.cli.run.launching",
    "gradscope.rules.catalogue",
    "gradscope.session.api",
)
_LIMIT = Path(__file__).with_name("time_limit.py")


class BrokenReportError(Exception):
    """There is no report; the message is the end of what gradscope wrote."""


class ForkedReports:
    """Some processes, each of which forks for a command at a time."""

    def __init__(self, jobs: int) -> None:
        modules = [one for one in _MODULES if find_spec(one.partition(".")[0])]
        self._idle = SimpleQueue[ForkedCommands]()
        for _ in range(jobs):
            self._idle.put(ForkedCommands(modules, _ENVIRONMENT))

    def findings(
        self, program: Program, *options: str, recording: Path | None = None
    ) -> Sequence[dict]:
        """Return the findings on a program, as JSON has them.

        Args:
            program: The program.
            options: Further options of the command.
            recording: File that keeps the recording; None to keep none.

        Raises:
            BrokenReportError: There is no report.
        """
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch) / "report.json"
            kept = recording or Path(scratch) / "train.gradscope"
            # `inspect` can have notes of its own about a recording, and writes none unasked.
            saved = ["--save", str(kept)] if recording or program.kind == "train" else []
            command = ["run" if program.kind == "train" else "inspect", *options, *saved]
            command += ["--output-format", "json", "--output-file", str(report)]
            said = self._run(program.path.parent, [*command, str(program.path)])
            try:
                return json.loads(report.read_text())["findings"]
            except (OSError, ValueError, KeyError, TypeError):
                raise BrokenReportError(said.strip()[-200:] or "no output") from None

    def _run(self, folder: Path, command: list[str]) -> str:
        commands = self._idle.get()
        try:
            done = commands.run(folder, command, _ENVIRONMENT, first=_LIMIT)
        finally:
            self._idle.put(commands)
        return done.stdout + done.stderr
