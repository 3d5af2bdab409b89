"""What watching costs two ranks on this machine: `python tests/benchmarks ranks`."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.evidence.training import WatchCost
from gradscope.recording.store import load_recording
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by

_RANKS, _WIDTH, _LAYERS, _ROWS = 2, 512, 6, 64
_FIRST = 110
"""Steps in which things are done once, or more often at first."""
_CHUNK, _CHUNKS, _TURNS = 5, 16, 5
"""Steps that are timed together, such chunks in a row, and pairs of a watched and a bare row."""


def ranks() -> None:
    """Print the ratio to the bare step of ranks whose rows of steps take turns with watched ones.

    Both by the clock, and by the CPU time of the process, which other processes disturb less.
    """
    print(f"\n{_RANKS} ranks under watch, budget 5 %: {_LAYERS} layers of width {_WIDTH}")
    titles = ("", "rank", "step", "clock", "CPU", "quartile", "own share")
    print("  {:<12}{:>5}{:>12} {:>7} {:>7} {:>9} {:>10}".format(*titles), flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in _WRAPPED:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(_measure, args=(name, folder), nprocs=_RANKS)


def _replicated(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def _sharded(model: nn.Module) -> nn.Module:
    return fully_shard(model)


_WRAPPED: dict[str, Callable[[nn.Module], nn.Module]] = {"DDP": _replicated, "FSDP2": _sharded}


def _measure(rank: int, name: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=_RANKS
    )
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    shares = []
    for turn in range(2 * _TURNS):
        is_watched = turn % 2 == 0
        with ExitStack() as stack:
            if is_watched:
                path = Path(folder, f"{turn}.rank{rank}.gradscope")
                shares.append(stack.enter_context(_watch(path)))
            times[is_watched] += _row(_WRAPPED[name])
    dist.destroy_process_group()
    # One rank after the other, in whole lines.
    bare, watched = (list(zip(*times[is_watched], strict=True)) for is_watched in (False, True))
    medians = [statistics.median(one) for one in (*bare, *watched)]
    low = [statistics.quantiles(one[1])[0] for one in (bare, watched)]
    share = statistics.median(one.share for (one,) in shares if one.share is not None)
    line = (
        f"  {name:<12}{rank:>5}{medians[0] * 1e3:>9.2f} ms {medians[2] / medians[0]:>7.3f}"
        f" {medians[3] / medians[1]:>7.3f} {low[1] / low[0]:>9.3f} {share:>10.3f}\n"
    )
    os.write(1, line.encode())


def _row(wrapped: Callable[[nn.Module], nn.Module]) -> list[tuple[float, float]]:
    """Train a new model; return the seconds of a step by the clock and the CPU, by chunk."""
    torch.manual_seed(0)
    layers = [one for _ in range(_LAYERS) for one in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    model = wrapped(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(dist.get_rank())

    def step() -> None:
        x = torch.randn(_ROWS, _WIDTH, generator=draws)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()

    for _ in range(_FIRST):
        step()
    found = []
    for _ in range(_CHUNKS):
        clock, cpu = time.perf_counter(), time.process_time()
        for _ in range(_CHUNK):
            step()
        spent = time.perf_counter() - clock, time.process_time() - cpu
        found.append((spent[0] / _CHUNK, spent[1] / _CHUNK))
    return found


@contextmanager
def _watch(path: Path) -> Iterator[list[WatchCost]]:
    """Watch what is done meanwhile as `gradscope run` does; yield what it costs, once it ended."""
    costs: list[WatchCost] = []
    make_captures = script_captures_by(Schedule(None))
    watch = TrainingWatch(path, "benchmark", budget=0.05, make_captures=make_captures)
    watch.start()
    try:
        yield costs
    finally:
        watch.stop()
    costs += load_recording(path).evidence_of(WatchCost)
