"""Runs distributed jobs of a few gloo ranks in processes that need not import everything again."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from tests.forked import ForkedCommands

MODULES = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.utils.data",
    "gradscope.capture.training.watch",
    "gradscope.cli.app",
    "gradscope.step_capture.script_captures",
)


class Jobs:
    """Processes that run the ranks of one job after another."""

    def __init__(self, ranks: int = 2) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._servers = [ForkedCommands(MODULES, environment) for _ in range(ranks)]

    def run(
        self,
        arguments: Sequence[object],
        folder: Path,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> list[tuple[int, str, str]]:
        """Run `gradscope ARGUMENTS` on every rank; return exit code, stdout and stderr of each."""
        port = free_port()
        folder.mkdir(exist_ok=True)
        for rank, server in enumerate(self._servers):
            streams = ["/dev/null", folder / f"out{rank}", folder / f"err{rank}"]
            server.start(
                cwd or folder,
                [str(one) for one in arguments],
                {
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(len(self._servers)),
                    "LOCAL_WORLD_SIZE": str(len(self._servers)),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": "lo",
                    **(environment or {}),
                },
                streams=streams,
            )
        codes = [server.ended() for server in self._servers]
        return [
            (code, (folder / f"out{rank}").read_text(), (folder / f"err{rank}").read_text())
            for rank, code in enumerate(codes)
        ]

    def record(self, script: Path, folder: Path, *options: str) -> tuple[Recording, ...]:
        """Watch a script on every rank, and return the recordings by rank."""
        save = folder / "job.gradscope"
        self.run(["run", "--quiet", "--save", save, *options, script], folder, cwd=script.parent)
        paths = [folder / f"job.rank{rank}.gradscope" for rank in range(len(self._servers))]
        return tuple(load_recording(path) for path in paths if path.exists())

    def close(self) -> None:
        """End the processes."""
        for server in self._servers:
            server.close()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
