"""Joins a job of many ranks: copies of one rank's recording under other numbers.

`python tests/benchmarks/rank_jobs.py [RANKS]` prints seconds and memory of `gradscope report`.
"""

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

RANKS, STEPS, LAYERS = 256, 1_000, 150
SCRIPT = f"""
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [nn.Linear(8, 8) for _ in range({LAYERS})]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range({STEPS}):
    x = torch.randn(4, 8)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29713",
    "OMP_NUM_THREADS": "1",
}


def main(ranks: int) -> None:
    """Print what the report of a job takes."""
    with tempfile.TemporaryDirectory() as folder:
        base = recorded(Path(folder))
        job = Path(folder, "job")
        job.mkdir()
        for rank in range(ranks):
            copied(base, job / f"job.rank{rank}.gradscope", rank, ranks)
        print(f"{ranks:,} ranks, {STEPS:,} steps, {2 * LAYERS} parameters")
        print(f"  on disk, a rank   {base.stat().st_size / 1e6:8.1f} MB")
        for form in ("json", "html"):
            began, used = time.perf_counter(), processor_seconds()
            out = Path(folder, f"report.{form}")
            gradscope("report", job, "--output-format", form, "-o", out)
            seconds = time.perf_counter() - began
            used = processor_seconds() - used
            size = out.stat().st_size / 1e6
            print(f"  report as {form:8}{seconds:8.1f} s, processor {used:.1f} s, {size:.1f} MB")
            if form == "json":
                value = json.loads(out.read_text())["ranks"]
                assert len(value["recorded"]) == ranks and not value["missing"]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"  largest memory    {peak / 1e9:8.2f} GB")


def processor_seconds() -> float:
    """Return the processor's time of commands so far: what else the machine does is not in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def recorded(folder: Path) -> Path:
    """Record one rank, in every step."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    save = folder / "one.gradscope"
    gradscope("run", "--quiet", "--every", "1", "--save", save, script)
    return folder / "one.rank0.gradscope"


def copied(base: Path, path: Path, rank: int, ranks: int) -> None:
    """Copy a recording as that of another rank, whose losses are its own."""
    shutil.copyfile(base, path)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE rank_identity SET rank = ?, world_size = ?", (rank, ranks))
        file.execute("UPDATE parameter_placement SET copies = ?", (ranks,))
        file.execute("UPDATE step SET loss = loss * ?", (1 + rank / ranks,))
        file.execute("UPDATE rank_pass SET digest = ?", (f"{rank:08x}",))


def gradscope(*arguments: object) -> None:
    """Run a command of gradscope."""
    command = [sys.executable, "-m", "gradscope", *map(str, arguments)]
    subprocess.run(command, check=True, env=os.environ | ALONE, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RANKS)
