"""Steps with gradients that were not reduced."""

import pytest

from gradscope.rules.engine import judge_job
from tests.rules.ranks.running import clean, found, script, training

METHOD = training(
    optimizer="AdamW(model.parameters(), lr=3e-3)",
    loss="model.module.loss(x, y)  # FAULT",
    steps=20,
)


NOSYNC_LAST = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    optimizer.zero_grad()
    for micro in range(4):
        with model.no_sync() if micro > 0 else contextlib.nullcontext():  # FAULT
            x, y = batch(8)
            loss = cross_entropy(model(x), y) / 4
            loss.backward()
    optimizer.step()
"""


UNFREEZE = training(
    setup="""
net = Net()
for p in net.body.parameters():
    p.requires_grad_(False)
model = DDP(net)
for p in net.body.parameters():
    p.requires_grad_(True)  # FAULT
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
""",
    steps=20,
)


UNWRAPPED_HEAD = training(
    setup="""
model = DDP(Net())
extra = nn.Linear(4, 4)
optimizer = torch.optim.AdamW([*model.parameters(), *extra.parameters()], lr=3e-3)
""",
    loss="cross_entropy(extra(model(x)), y)  # FAULT",
    steps=20,
)


@pytest.mark.nightly
def test_a_method_of_the_module_goes_around_ddp(jobs, tmp_path):
    assert found(jobs, METHOD, tmp_path, "GS802").ranks


def test_no_sync_around_the_last_pass_is_found(jobs, tmp_path):
    assert found(jobs, NOSYNC_LAST, tmp_path, "GS802").ranks


@pytest.mark.nightly
def test_parameters_unfrozen_after_wrapping_are_found(jobs, tmp_path):
    assert found(jobs, UNFREEZE, tmp_path, "GS802").ranks


@pytest.mark.nightly
def test_a_trained_layer_outside_of_ddp_is_found(jobs, tmp_path):
    assert found(jobs, UNWRAPPED_HEAD, tmp_path, "GS802").ranks


TOO_EARLY = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x, y = batch()
    loss = cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=False)
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)  # FAULT
            p.grad /= world
    loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_a_reduction_before_backward_is_found(jobs, tmp_path):
    assert found(jobs, TOO_EARLY, tmp_path, "GS802").ranks


PIPELINE = """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
net = Net()
part = nn.Sequential(net.body) if rank == 0 else nn.Sequential(net.head)
stage = PipelineStage(part, rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, 4, loss_fn=cross_entropy)
optimizer = torch.optim.AdamW(part.parameters(), lr=3e-3)
draws = torch.Generator().manual_seed(5)
loss = torch.zeros(())
for step in range(12):
    x, y = batch(16)
    optimizer.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
        loss = torch.stack(losses).mean().detach()
    optimizer.step()
"""


@pytest.mark.nightly
def test_stages_of_a_pipeline_are_healthy(jobs, tmp_path):
    clean(jobs, PIPELINE, tmp_path)


TENSOR_PARALLEL = training(
    setup="""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
draws = torch.Generator().manual_seed(100)
class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
    def forward(self, x):
        return self.head(self.body(self.norm(x)))
model = Normed()
parallelize_module(model, mesh, {"body.0": ColwiseParallel(), "body.2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
"""
)


@pytest.mark.nightly
def test_replicated_layers_of_tensor_parallelism_are_healthy(jobs, tmp_path):
    clean(jobs, TENSOR_PARALLEL, tmp_path)


WRAPPED_AGAIN = """
net = Net()
for p in net.body.parameters():
    p.requires_grad = False
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(16):
    if step == 6:
        for p in net.body.parameters():
            p.requires_grad = True
        model = DDP(net)
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_a_model_that_is_wrapped_again_is_healthy_on_each_rank_too(jobs, tmp_path):
    recordings = jobs.record(script(WRAPPED_AGAIN, tmp_path), tmp_path / "job")
    for one in (recordings, recordings[:1]):
        findings = judge_job(one).findings
        assert not [finding for finding in findings if finding.severity != "note"]


TIED = """
class Last(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table
        self.mix = nn.Linear(8, 8)

    def forward(self, hidden):
        return self.mix(hidden) @ self.table.weight.T


table = nn.Embedding(20, 8)
stage = Last(table) if rank else nn.Sequential(table, nn.Tanh())
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
draws = torch.Generator().manual_seed(3)
for step in range(12):
    ids = torch.randint(0, 20, (16,), generator=draws)
    optimizer.zero_grad()
    if rank == 0:
        hidden = stage(ids)
        dist.send(hidden.detach(), 1)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, 1)
        hidden.backward(gradient)
        loss = hidden.sum()
    else:
        hidden = torch.empty(16, 8)
        dist.recv(hidden, 0)
        hidden.requires_grad_()
        loss = cross_entropy(stage(hidden), (ids + 1) % 20)
        loss.backward()
        dist.send(hidden.grad, 0)
    optimizer.step()  # FAULT
"""


@pytest.mark.nightly
def test_a_tied_embedding_that_stages_train_apart_is_found(jobs, tmp_path):
    finding = found(jobs, TIED, tmp_path, "GS802")
    assert finding.severity == "warning"
    assert finding.ranks == (0, 1)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "healthy",
    [
        TIED.replace(
            "    optimizer.step()", "    dist.all_reduce(table.weight.grad)\n    optimizer.step()"
        ),
        # Stages that were seeded alike, each with words of its own.
        TIED.replace("self.mix(hidden) @ self.table.weight.T", "(hidden + self.table(ids)) @ W.T")
        .replace("table = nn.Embedding", "W = torch.randn(20, 8)\ntable = nn.Embedding")
        .replace("self.mix = nn.Linear(8, 8)", "pass"),
    ],
    ids=["gradients-added", "tables-of-their-own"],
)
def test_embeddings_of_stages_are_healthy(jobs, tmp_path, healthy):
    clean(jobs, healthy, tmp_path)


AFTERWARDS = """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
def average():
    for one in model.parameters():
        dist.all_reduce(one.grad)
        one.grad /= world
for step in range(12):
    x, y = batch()
    loss, penalty = model.loss(x, y), model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    average()
    (0.1 * penalty).backward()  # FAULT
    <then>
    optimizer.step()
"""


def test_a_backward_after_the_reduction_is_found(jobs, tmp_path):
    finding = found(jobs, AFTERWARDS.replace("<then>", "pass"), tmp_path, "GS802")
    assert finding.location.source == "(0.1 * penalty).backward()  # FAULT"


@pytest.mark.nightly
def test_a_reduction_after_each_backward_is_healthy(jobs, tmp_path):
    clean(jobs, AFTERWARDS.replace("<then>", "average()"), tmp_path)
