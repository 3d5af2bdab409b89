"""Joined norms against the full gradient of the same model on one device."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.analysis.norms import agree, global_norms
from gradscope.analysis.ranks.job import Job
from gradscope.analysis.ranks.joined import joined_recording
from gradscope.recording.evidence.ranks import ParameterPlacement, RankIdentity, RankNumbers
from gradscope.recording.norm_table import norms_of
from gradscope.recording.records import ParameterRecord, Shape, StepRecord
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge_job
from tests.nightly import some_on_push

SCRIPT = """
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed({seed})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, {width}), nn.Linear({width}, 12)
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.norm(self.second(torch.relu(self.first(x)))))


def backward():
    cross_entropy(model(x), y).backward()


model = Net()
reference = copy.deepcopy(model)
batches = [(torch.randn(8, 12), torch.randint(4, (8,))) for _ in range(world)]
part, parts = rank, world
{wrap}
x, y = batches[part]
optimizer = {optimizer}
for step in range(3):
    optimizer.zero_grad()
    backward()
    if step == 0:
        (sum(cross_entropy(reference(a), b) for a, b in batches[:parts]) / parts).backward()
        for name, p in reference.named_parameters():
            print(f"square {{name}} {{p.grad.double().pow(2).sum().item():.12g}}", flush=True)
        del reference
    optimizer.step()
dist.destroy_process_group()
"""
TENSOR_PARALLEL = """
part, parts = 0, 1
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
parallelize_module(model, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})
"""
SEQUENCE_PARALLEL = """
part, parts = 0, 1
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
parallelize_module(model, mesh, {
    "first": ColwiseParallel(input_layouts=Replicate()),
    "second": RowwiseParallel(output_layouts=Shard(0)),
    "norm": SequenceParallel(sequence_dim=0),
    "head": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
})
"""
BOTH_PARALLEL = """
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
part, parts = mesh["dp"].get_local_rank(), 2
parallelize_module(model, mesh["tp"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
"""
STAGES = """
part, parts = 0, 1
whole, stages = model, dist.get_world_size()
model = (
    nn.Sequential(whole.first, nn.ReLU(), whole.second) if rank == 0
    else nn.Sequential(whole.norm, whole.head)
)
stage = PipelineStage(model, rank, stages, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=cross_entropy)
backward = lambda: schedule.step(x) if rank == 0 else schedule.step(target=y)
"""
HYBRID = """
mesh = init_device_mesh("cpu", (world // SHARDS, SHARDS), mesh_dim_names=("r", "s"))
fully_shard(model.second, mesh=mesh)
fully_shard(model, mesh=mesh)
"""
ZERO = """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DistributedDataParallel(model)
"""
OPTIMIZERS = {ZERO: "ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)"}
ON_TWO = {
    "DDP": "model = DistributedDataParallel(model)",
    "FSDP2": "fully_shard(model.second)\nfully_shard(model)",
    "hybrid-replicated": HYBRID.replace("SHARDS", "1"),
    "hybrid-sharded": HYBRID.replace("SHARDS", "2"),
    "FSDP1": (
        "model = FullyShardedDataParallel(\n"
        '    model, use_orig_params=True, device_id=torch.device("cpu")\n)'
    ),
    "TP": TENSOR_PARALLEL,
    "sequence": SEQUENCE_PARALLEL,
    "stages": STAGES,
    "ZeRO": ZERO,
}
ON_FOUR = {
    "FSDP2": ON_TWO["FSDP2"],
    "FSDP1": ON_TWO["FSDP1"],
    "hybrid": HYBRID.replace("SHARDS", "2"),
    "TP-FSDP2": BOTH_PARALLEL,
    "sequence": SEQUENCE_PARALLEL,
}


@pytest.mark.parametrize("strategy", some_on_push(ON_TWO, 3))
def test_the_joined_norm_is_that_of_the_full_gradient(jobs, tmp_path, strategy):
    check(jobs, ON_TWO[strategy], tmp_path, seed=0, width=16)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ON_TWO)
def test_the_joined_norm_is_that_of_another_full_gradient(jobs, tmp_path, strategy):
    check(jobs, ON_TWO[strategy], tmp_path, seed=3, width=14)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ON_FOUR)
def test_the_norm_joined_from_four_ranks_is_that_of_the_full_gradient(jobs, tmp_path, strategy):
    check(jobs, ON_FOUR[strategy], tmp_path, seed=1, width=20, ranks=4)


def check(jobs, wrap, tmp_path, *, seed, width, ranks=2):
    """Run a job, compare its first joined norm with the one that the script prints."""
    partial = ("norm.weight", "norm.bias") if wrap == SEQUENCE_PARALLEL else ()
    script = tmp_path / "train.py"
    optimizer = OPTIMIZERS.get(wrap, "torch.optim.SGD(model.parameters(), lr=0.1)")
    script.write_text(SCRIPT.format(seed=seed, width=width, wrap=wrap, optimizer=optimizer))
    folder = tmp_path / "job"
    save = folder / "job.gradscope"
    arguments = ["run", "--quiet", "--save", save, script]
    ended = jobs.run(arguments, folder, ranks=ranks, cwd=tmp_path)
    assert {code for code, *_ in ended} == {0}, ended
    squares = dict(re.findall(r"square (\S+) (\S+)", ended[0][1]))
    recordings = [load_recording(one) for one in sorted(folder.glob("*.gradscope"))]
    assert len(recordings) == len(ended)
    first = global_norms(Job.of(recordings), "backward")[0]
    assert len(squares) == 8
    assert tuple(name.removeprefix("model.") for name in first.partial) == partial
    known = math.fsum(float(one) for name, one in squares.items() if name not in partial)
    assert first.norm == pytest.approx(math.sqrt(known), rel=1e-5)
    joined = joined_recording(recordings)
    table = norms_of(joined)
    trained = {one.index: one for one in joined.parameters if not one.name.startswith("reference")}
    rows = [row for row in table.rows_of(0) if table.parameters[row] in trained]
    assert len(rows) == len(trained) == 8
    assert not any(one.is_shard for one in trained.values())
    if not partial:
        norms = [table.gradients[row] for row in rows]
        assert math.hypot(*norms) == pytest.approx(first.norm, rel=1e-5)
    findings = judge_job(tuple(recordings)).findings
    assert not [one for one in findings if one.severity != "note"]


def rank_of(number, world, placements, squares, template):
    """Return a recording of a rank that holds some parameters."""
    parameters = tuple(
        ParameterRecord(
            index=index,
            name=f"p{index}",
            aliases=(),
            module=0,
            shape=Shape(dims=(8,), dtype="float32"),
            device="cpu",
            numel=8,
            requires_grad=True,
            optimizer_group=None,
        )
        for index in range(len(placements))
    )
    identity = RankIdentity(
        rank=number,
        local_rank=number,
        world_size=world,
        backend="gloo",
        job="job",
        host="host",
        started=0.0,
        clock=0.0,
    )
    numbers = RankNumbers(step=0, moment="step", values=tuple(squares))
    steps = (StepRecord(index=0, kind="run", graph=None, loss=None, optimizer="SGD"),)
    evidence = (identity, *placements, numbers)
    return replace(template, parameters=parameters, steps=steps, evidence=evidence)


def placement(index, kind, copies):
    return ParameterPlacement(
        parameter=index,
        kind=kind,
        placements=(),
        mesh=(),
        shape=(8,),
        numel=8,
        is_reduced=kind == "replicated",
        copies=copies,
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An empty recording."""
    from gradscope.recording.meta import Header, run_header
    from gradscope.recording.run_recorder import RunRecorder

    path = tmp_path_factory.mktemp("empty") / "empty.gradscope"
    header: Header = run_header("run", "train.py", torch="2.13", threads=1)
    RunRecorder(path, header).close(None)
    return load_recording(path)


values = st.lists(
    st.floats(min_value=-1e3, max_value=1e3, allow_nan=False).filter(lambda x: abs(x) > 1e-3),
    min_size=8,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(
    shards=st.integers(1, 4),
    replicas=st.integers(1, 3),
    kinds=st.lists(st.sampled_from(["replicated", "sharded", "local"]), min_size=1, max_size=5),
    data=st.data(),
)
def test_parts_add_up_and_replicas_count_once(template, shards, replicas, kinds, data):
    world = shards * replicas
    whole = [data.draw(values) for _ in kinds]
    placements, columns = [], [[] for _ in range(world)]
    for index, (kind, gradient) in enumerate(zip(kinds, whole, strict=True)):
        copies = {"replicated": world, "sharded": replicas, "local": 0}[kind]
        placements.append(placement(index, kind, copies))
        for rank in range(world):
            part = gradient[rank % shards :: shards] if kind == "sharded" else gradient
            columns[rank].append(math.fsum(x * x for x in part))
    ranks = [rank_of(r, world, placements, columns[r], template) for r in range(world)]
    (found,) = global_norms(Job.of(ranks), "step")
    expected = math.sqrt(math.fsum(x * x for gradient in whole for x in gradient))
    assert found.norm == pytest.approx(expected, rel=1e-9)


def test_partial_gradients_are_named_and_left_out(template):
    placements = [placement(0, "replicated", 2), placement(1, "partial", 1)]
    ranks = [rank_of(r, 2, placements, [4.0, 9.0], template) for r in (0, 1)]
    (found,) = global_norms(Job.of(ranks), "step")
    assert (found.norm, found.partial) == (2.0, ("p1",))


def test_a_missing_rank_gives_no_global_norm(template):
    ranks = [rank_of(0, 2, [placement(0, "replicated", 2)], [4.0], template)]
    assert global_norms(Job.of(ranks), "step") == []


def test_norms_agree_up_to_the_tolerance_and_nan_agrees_with_nan():
    assert agree([1.0, 1.0 + 0.9e-5])
    assert not agree([1.0, 1.0 + 1.1e-5])
    assert agree([math.nan, math.nan])
    assert not agree([math.nan, 1.0])
    assert not agree([math.inf, 1.0])
    assert agree([0.0, 0.0])


def test_stages_with_equal_names_add_up(template):
    """Two stages of a pipeline, each on two ranks, with parameters of the same name."""
    placements = [placement(0, "replicated", 2), placement(1, "local", 0)]
    squares = [(4.0, 1.0), (4.0, 1.0), (9.0, 2.0), (9.0, 2.0)]
    ranks = [rank_of(r, 4, placements, squares[r], template) for r in range(4)]
    (found,) = global_norms(Job.of(ranks), "step")
    assert found.norm == pytest.approx(math.sqrt(4.0 + 9.0 + 6.0))


@pytest.mark.parametrize(("other", "expected"), [((4.0, 9.0), 13.0), ((1.0, 2.0), 16.0)])
def test_parts_that_ranks_outside_of_the_mesh_repeat_count_once(template, other, expected):
    """Parts over one dimension of two: repeated by tensor parallelism, or of another stage."""
    one = replace(placement(0, "sharded", 1), mesh=(("dp", 2),))
    squares = [4.0, other[0], 9.0, other[1]]
    ranks = [rank_of(r, 4, [one], [squares[r]], template) for r in range(4)]
    (found,) = global_norms(Job.of(ranks), "step")
    assert found.norm == pytest.approx(math.sqrt(expected))
