"""A watched job gives the same losses, weights and random states as without gradscope."""

import pytest

from tests.jobs import Jobs
from tests.rules.ranks.running import script

LOOP = """
for step in range(30):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x).float(), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    print(rank, step, loss.item().hex())
"""
STATE = """
weights = [getattr(p, "_local_tensor", p).detach().double().sum().item() for p in params()]
print(rank, [one.hex() for one in weights], torch.random.get_rng_state().sum().item())
"""
JOBS = {
    "ddp": "model = DDP(Net())",
    "options": "model = DDP(Net(), static_graph=True, gradient_as_bucket_view=True)",
    "unused": "model = DDP(Net(), find_unused_parameters=True)",
    "bfloat16": "model = DDP(Net().bfloat16())\nforward = batch\n"
    "batch = lambda: tuple(t.bfloat16() if t.is_floating_point() else t for t in forward())",
    "power-sgd": """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
model = DDP(Net())
state = power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=4)
model.register_comm_hook(state, power.powerSGD_hook)
""",
    "fsdp2": """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = Net()
low = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
fully_shard(model.body, mp_policy=low)
fully_shard(model, mp_policy=low)
""",
    "zero": """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(Net())
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)
""",
}


@pytest.fixture(scope="module")
def jobs():
    running = Jobs()
    yield running
    running.close()


@pytest.mark.parametrize("name", JOBS)
def test_a_watched_job_is_the_same_to_the_bit(jobs, tmp_path, name):
    optimizer = "" if name == "zero" else "optimizer = torch.optim.AdamW(model.parameters())\n"
    body = f"{JOBS[name]}\n{optimizer}params = model.parameters\n{LOOP}{STATE}"
    path = script(body, tmp_path)
    arguments = ["run", "--quiet", "--save", "job.gradscope", path]
    bare = jobs.run(arguments, tmp_path / "bare", environment={"GRADSCOPE": "off"})
    watched = jobs.run(arguments, tmp_path / "watched")
    assert [code for code, *_ in watched] == [0, 0], watched
    assert not (tmp_path / "bare" / "job.rank0.gradscope").exists()
    assert (tmp_path / "watched" / "job.rank0.gradscope").exists()
    assert [out for _, out, _ in watched] == [out for _, out, _ in bare]
