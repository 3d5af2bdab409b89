"""The `meta` table: what was recorded, where, and by which version."""

import json
import platform
from pathlib import Path

from gradscope.frozen import dataclass
from gradscope.recording.encoding import write_text
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import (
    Recording,
)
from gradscope.version import __version__

Texts = dict[str, str | None]

HEADER_NAMES = (
    "version",
    "command",
    "environment.python",
    "environment.torch",
    "environment.platform",
    "environment.device",
    "environment.threads",
    "target.name",
    "target.model",
    "target.batch",
    "target.loss",
    "target.optimizer",
    "target.mode",
    "target.seed",
    "target.synthetic_loss",
    "target.guessed",
    "target.root",
    "target.repository",
    "finished",
)
"""Names of a header's texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Data that is known before the first step."""

    version: str
    """Version of gradscope."""
    command: str
    environment: Environment
    target: TargetRecord
    finished: bool = True
    """False during a run, and for ever if it was killed."""


def header_of(recording: Recording) -> Header:
    """Return the recording's header."""
    return Header(
        version=recording.version,
        command=recording.command,
        environment=recording.environment,
        target=recording.target,
        finished=recording.finished,
    )


def write_header(header: Header) -> Texts:
    """Return the header as texts by name; None stays None."""
    environment, target = header.environment, header.target
    texts = {
        "version": header.version,
        "command": header.command,
        "environment.python": environment.python,
        "environment.torch": environment.torch,
        "environment.platform": environment.platform,
        "environment.device": environment.device,
        "environment.threads": str(environment.threads),
        "target.name": target.name,
        "target.model": target.model,
        "target.batch": target.batch,
        "target.loss": target.loss,
        "target.optimizer": target.optimizer,
        "target.mode": target.mode,
        # As text: a seed may need 64 bits, one more than SQLite's integers have.
        "target.seed": None if target.seed is None else str(target.seed),
        "target.synthetic_loss": "true" if target.synthetic_loss else "false",
        "target.guessed": json.dumps(target.guessed) if target.guessed else None,
        "target.root": target.root,
        "target.repository": target.repository,
        "finished": "true" if header.finished else "false",
    }
    return {name: None if text is None else write_text(text) for name, text in texts.items()}


def read_header(texts: Texts) -> Header:
    """Return the header in the texts.

    Raises:
        ValueError: A text is missing or unreadable.
    """

    def text(name: str) -> str:
        # A text that must be there may still be NULL in a damaged file.
        value = texts.get(name)
        if value is None:
            raise ValueError(f"`{name}` is missing in the table `meta`")
        return value

    seed = texts.get("target.seed")
    repository = texts.get("target.repository")
    return Header(
        version=text("version"),
        command=text("command"),
        environment=Environment(
            python=text("environment.python"),
            torch=text("environment.torch"),
            platform=text("environment.platform"),
            device=text("environment.device"),
            threads=int(text("environment.threads")),
        ),
        target=TargetRecord(
            name=text("target.name"),
            model=text("target.model"),
            batch=text("target.batch"),
            loss=text("target.loss"),
            optimizer=texts.get("target.optimizer"),
            mode=text("target.mode"),
            seed=None if seed is None else int(seed),
            synthetic_loss=text("target.synthetic_loss") == "true",
            guessed=tuple(json.loads(texts.get("target.guessed") or "[]")),
            root=text("target.root"),
            # Recordings of earlier versions lack it.
            repository=text("target.root") if repository is None else repository,
        ),
        # Recordings of earlier versions lack it.
        finished=texts.get("finished") != "false",
    )


# In a worktree or a submodule, `.git` is a file.
_MARKS = (".git", "pyproject.toml")


def repository_of(folder: Path) -> Path:
    """Return the nearest parent with `.git`, else with `pyproject.toml`, else the folder."""
    upward = (folder, *folder.parents)
    return next((one for mark in _MARKS for one in upward if (one / mark).exists()), folder)


_OF_GRADIENTS = frozenset({"backward", "backward-error", "grad", "grad-error", "step"})


def has_no_gradients(recording: Recording) -> bool:
    """Return whether the recording of a run contains nothing about gradients.

    A script that starts training processes may itself only make an optimizer, or zero gradients.
    """
    kinds = {event.kind for event in recording.events}
    return not recording.captured_steps and kinds.isdisjoint(_OF_GRADIENTS)


def run_header(command: str, name: str, *, torch: str, threads: int) -> Header:
    """Return the header of a run that starts in the working directory.

    Args:
        command: The command as typed.
        name: Name of the program.
        torch: Version of torch.
        threads: Number of threads that torch computes with.
    """
    folder = Path.cwd()
    return Header(
        version=__version__,
        command=command,
        environment=Environment(
            python=platform.python_version(),
            torch=torch,
            platform=f"{platform.system()} {platform.machine()}",
            device="cpu",
            threads=threads,
        ),
        target=TargetRecord(
            name=name,
            model="",
            batch="",
            loss="",
            optimizer=None,
            mode="train",
            seed=None,
            synthetic_loss=False,
            root=str(folder),
            repository=str(repository_of(folder)),
        ),
    )
