"""Finds the place of this process in its job."""

import os
import socket
import time

import torch.distributed as dist

from gradscope.recording.evidence.ranks import RankIdentity


def is_launched() -> bool:
    """Return whether a launcher such as torchrun started this process as one of several ranks."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_in_group() -> bool:
    """Return whether the process group is ready."""
    return dist.is_available() and dist.is_initialized()


def identity(clock: float) -> RankIdentity:
    """Return the identity of this rank, whose process group is ready.

    Args:
        clock: Wall clock when the recording began.
    """
    return RankIdentity(
        rank=dist.get_rank(),
        local_rank=_number("LOCAL_RANK"),
        world_size=dist.get_world_size(),
        backend=str(dist.get_backend()),
        job=_job(),
        host=socket.gethostname(),
        started=time.time(),
        clock=clock,
    )


def _job() -> str:
    environment = os.environ.get
    run, attempt = environment("TORCHELASTIC_RUN_ID"), environment("TORCHELASTIC_RESTART_COUNT")
    address = f"{environment('MASTER_ADDR', '')}:{environment('MASTER_PORT', '')}"
    # torchrun names runs without a rendezvous of their own `none`.
    parts = (run if run != "none" else None, address if address != ":" else None, attempt)
    return " ".join(part for part in parts if part)


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
