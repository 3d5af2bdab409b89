"""Runs jobs of a few gloo ranks."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from tests.forked import ForkedCommands, command

_LIMIT = 60
"""Seconds that a job may take for each of its ranks."""


class Jobs:
    """Runs one job after another in forked processes."""

    def __init__(self, forked: ForkedCommands) -> None:
        self._server = forked
        self._known: dict[tuple[object, ...], tuple[Recording, ...]] = {}

    def run(
        self,
        arguments: Sequence[object],
        folder: Path,
        *,
        ranks: int = 2,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> list[tuple[int, str, str]]:
        """Run `gradscope ARGUMENTS` on every rank; return exit code, stdout and stderr of each."""
        shared = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "GLOO_SOCKET_IFNAME": "lo",
            **(environment or {}),
        }
        folder.mkdir(exist_ok=True)
        self._server.start_all(
            [
                command(
                    cwd or folder,
                    [str(one) for one in arguments],
                    {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    streams=["/dev/null", folder / f"out{rank}", folder / f"err{rank}"],
                )
                for rank in range(ranks)
            ]
        )
        return [
            (code, (folder / f"out{rank}").read_text(), (folder / f"err{rank}").read_text())
            for rank, code in enumerate(self._server.all_ended(ranks * _LIMIT))
        ]

    def recordings(self, script: Path, folder: Path, *options: str) -> tuple[Recording, ...]:
        """Watch a script on two ranks, once for all tests that have the same, and return them."""
        key = (script.read_text(), *options)
        if key not in self._known:
            self._known[key] = self.record(script, folder, *options)
        return self._known[key]

    def record(
        self, script: Path, folder: Path, *options: str, ranks: int = 2
    ) -> tuple[Recording, ...]:
        """Watch a script on every rank, and return the recordings by rank, whose files remain."""
        save = folder / "job.gradscope"
        arguments = ["run", "--quiet", "--save", save, *options, script]
        self.run(arguments, folder, ranks=ranks, cwd=script.parent)
        paths = [folder / f"job.rank{rank}.gradscope" for rank in range(ranks)]
        return tuple(load_recording(path) for path in paths if path.exists())


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
