"""A rank is lost: the others train on as in a bare job until then, and their recordings remain."""

import re

import pytest

from gradscope.analysis.ranks.job_summary import rank_series
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.store import load_recording

JOB = """
import hashlib, os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
rank, how = dist.get_rank(), sys.argv[1]
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
draws = torch.Generator().manual_seed(rank)
for step in range(20):
    x = torch.randn(8, 8, generator=draws)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    print(step, loss.item().hex(), hashlib.sha256(weights).hexdigest(), flush=True)
    if step == 6 and rank == 1:
        match how:
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raised":
                raise ValueError("a broken file")
            case "waiting":
                time.sleep(12)
                os.kill(os.getpid(), signal.SIGKILL)
"""
TOLD = {
    "killed": "no ending: it was killed or is still running",
    "raised": "ValueError: a broken file",
    "waiting": "no ending: it was killed or is still running",
}


@pytest.mark.parametrize(
    "how", ["killed", *(pytest.param(one, marks=pytest.mark.nightly) for one in list(TOLD)[1:])]
)
def test_survivors_train_as_in_a_bare_job_until_a_rank_is_lost(command, jobs, tmp_path, how):
    script = tmp_path / "train.py"
    script.write_text(JOB)
    arguments = ["run", "--quiet", "--save", "job.gradscope", script, how]
    bare = jobs.run(arguments, tmp_path / "bare", ranks=3, environment={"GRADSCOPE": "off"})
    folder = tmp_path / "watched"
    watched = jobs.run(arguments, folder, ranks=3)
    codes = [code for code, *_ in watched]
    assert codes == [code for code, *_ in bare]
    assert 0 not in codes
    assert [out for _, out, _ in watched] == [out for _, out, _ in bare]
    assert all(out.count("\n") == 7 for _, out, _ in watched)
    for rank, (_, out, _) in enumerate(watched):
        recording = load_recording(folder / f"job.rank{rank}.gradscope")
        printed = [line.split()[1] for line in out.splitlines()]
        (series,) = rank_series([recording])
        assert [(step, loss.hex()) for step, loss in series.losses] == [*enumerate(printed)]
        kinds = [one.kind for one in recording.evidence_of(RunEnding)]
        assert kinds == ["raised"] * (rank != 1 or how == "raised")
    _, out, _ = command("report", folder / "job.gradscope")
    # A long path is broken over lines.
    (first,) = re.findall(r"rank1failedfirst:\S+train\.py:\d+:(.*)", "".join(out.split()))
    assert first.startswith(TOLD[how].replace(" ", ""))
