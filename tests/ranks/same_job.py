"""Trainings on several ranks, each told to the bit: `same_job.py NAME`, run on every rank."""

import contextlib
import random
import shutil
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from tests.ranks.training import (
    Checkpointed,
    Job,
    Net,
    Part,
    batch,
    digest,
    loop,
    same_batch,
    tell,
    told,
)


def ddp(net=Net, **options):
    return DistributedDataParallel(net(), **options)


def ddp_autocast():
    model = ddp()

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    loop(model, forward=forward)


def ddp_compiled():
    # The compiler splits the graph where the buckets of DDP end.
    loop(torch.compile(ddp(), backend="aot_eager"))


def ddp_bf16():
    model = DistributedDataParallel(Net().bfloat16())
    loop(model, forward=lambda x: model(x.bfloat16()))


def ddp_power_sgd():
    model = ddp()
    state = power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3)
    model.register_comm_hook(state, power.powerSGD_hook)
    loop(model)
    # The last pass's closures hold the group. If the thread that ran them drops them last, the
    # group's destructor joins its own thread, and the process aborts.
    time.sleep(0.3)


def ddp_fp16_hook():
    model = ddp()
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    loop(model)


def ddp_no_sync():
    model = ddp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(6):
        optimizer.zero_grad()
        for micro in range(3):
            with model.no_sync() if micro < 2 else contextlib.nullcontext():
                x, y = batch()
                loss = cross_entropy(model(x), y) / 3
                loss.backward()
                told(model.parameters(), loss)
        optimizer.step()
    told(model.parameters(), loss)


def joined(*joinables):
    """Train with more steps on the second rank."""
    model, optimizer = joinables[0], joinables[-1]
    if len(joinables) == 1:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with Join(list(joinables)):
        for _ in range(6 + 3 * Job.rank):
            optimizer.zero_grad()
            x, y = batch()
            loss = cross_entropy(model(x), y)
            loss.backward()
            told(model.parameters(), loss)
            optimizer.step()
    told(model.parameters(), loss)


def ddp_join_zero():
    model = ddp()
    joined(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3))


def ddp_uneven():
    sizes = iter(range(100))
    loop(ddp(), get=lambda: batch(4 + next(sizes) * (Job.rank + 1) % 5))


def ddp_batch_norm():
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    loop(DistributedDataParallel(net))


def ddp_loader():
    x, y = batch(60, torch.Generator().manual_seed(1))
    data, model = TensorDataset(x, y), ddp()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        loop(model, steps=len(loader), get=lambda batches=batches: next(batches))


def ddp_gathered():
    model = ddp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(8):
        x, y = batch()
        optimizer.zero_grad()
        features = model(x)
        everyone = torch.cat(differentiable.all_gather(features))
        loss = (everyone @ everyone.T).logsumexp(1).mean() + cross_entropy(features, y)
        loss.backward()
        told(model.parameters(), loss)
        optimizer.step()


def by_hand():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        x, y = batch()
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        works = [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]
        for work, one in zip(works, model.parameters(), strict=True):
            work.wait()
            one.grad /= Job.world
        told(model.parameters(), loss)
        optimizer.step()


def zero(**options):
    model = ddp(**options)
    loop(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3))


def sharded(net=Net, **options):
    model = net()
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model


LOW = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def fsdp2_compiled():
    model = Net()
    for block in model.blocks:
        block.compile(backend="aot_eager")
        fully_shard(block)
    fully_shard(model)
    loop(model)


def fsdp2_compiled_autograd():
    torch._dynamo.config.compiled_autograd = True
    model = sharded()
    loop(torch.compile(model, backend="aot_eager"))


def fsdp2_accumulate():
    model = sharded(mp_policy=LOW)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(6):
        for micro in range(3):
            model.set_requires_gradient_sync(micro == 2)
            model.set_is_last_backward(micro == 2)
            x, y = batch()
            loss = cross_entropy(model(x).float(), y) / 3
            loss.backward()
            told(model.parameters(), loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    told(model.parameters(), loss)


def fsdp2_saved():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loop(model, optimizer, steps=4)
    names = ("model", "optimizer")
    dcp.save(dict(zip(names, get_state_dict(model, optimizer), strict=True)), checkpoint_id="saved")
    loop(model, optimizer, steps=2)
    state = dict(zip(names, get_state_dict(model, optimizer), strict=True))
    dcp.load(state, checkpoint_id="saved")
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    loop(model, optimizer, steps=4)
    if Job.rank == 0:
        shutil.rmtree("saved")


def fsdp1(**options):
    return FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), **options)


def hybrid():
    shape = (Job.world // 2, 2)
    loop(sharded(mesh=init_device_mesh("cpu", shape, mesh_dim_names=("r", "s"))))


PLAN = {
    f"blocks.{block}.{name}": style()
    for block in range(2)
    for name, style in (("up", ColwiseParallel), ("down", RowwiseParallel))
}


def mesh_of_all():
    return init_device_mesh("cpu", (Job.world,), mesh_dim_names=("tp",))


def tensor_parallel():
    loop(parallelize_module(Net(), mesh_of_all(), PLAN), get=same_batch, clip=0)


def tensor_parallel_sharded():
    mesh = init_device_mesh("cpu", (Job.world // 2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(Net(), mesh["tp"], PLAN)
    fully_shard(model, mesh=mesh["dp"])
    draws = torch.Generator().manual_seed(50 + mesh["dp"].get_local_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    loop(model, optimizer, get=lambda: batch(generator=draws), clip=0)


def sequence_parallel():
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4)
    )
    styles = {
        "0": ColwiseParallel(input_layouts=Replicate()),
        "2": RowwiseParallel(output_layouts=Shard(0)),
        "3": SequenceParallel(sequence_dim=0),
        "4": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
    }
    loop(parallelize_module(model, mesh_of_all(), styles), get=same_batch, clip=0)


def parallel_loss():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    last = ColwiseParallel(input_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh_of_all(), {"0": ColwiseParallel(), "2": last})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        x, y = same_batch()
        optimizer.zero_grad()
        with loss_parallel():
            loss = cross_entropy(model(x), y)
            loss.backward()
        told(model.parameters(), getattr(loss.detach(), "full_tensor", loss.detach)())
        optimizer.step()


def pipeline(schedule_name, stages_per_rank=1):
    from torch.distributed import pipelining

    count = Job.world * stages_per_rank
    layers = [nn.Linear(8 if at == 0 else 16, 4 if at == count - 1 else 16) for at in range(count)]
    parts = [nn.Sequential(layer, nn.Dropout(0.1)) for layer in layers]
    mine = range(Job.rank, count, Job.world)
    device = torch.device("cpu")
    stages = [pipelining.PipelineStage(parts[at], at, count, device) for at in mine]
    schedule = getattr(pipelining, schedule_name)(
        stages if stages_per_rank > 1 else stages[0], n_microbatches=4, loss_fn=cross_entropy
    )
    parameters = [one for at in mine for one in parts[at].parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    for _ in range(6):
        x, y = same_batch()
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        inputs = (x,) if Job.rank == 0 else ()
        last = {"target": y, "losses": losses} if Job.rank == Job.world - 1 else {}
        schedule.step(*inputs, **last)
        told(parameters, torch.stack(losses).mean() if losses else None)
        optimizer.step()


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(*batch(64)), batch_size=4, shuffle=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            told(model.parameters(), loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    told(model.parameters(), loss)


JOBS = {
    "ddp": lambda: loop(ddp()),
    "ddp-static": lambda: loop(ddp(static_graph=True, gradient_as_bucket_view=True)),
    "ddp-unused": lambda: loop(ddp(Part, find_unused_parameters=True)),
    "ddp-checkpointed": lambda: loop(ddp(Checkpointed)),
    "ddp-autocast": ddp_autocast,
    "ddp-compiled": ddp_compiled,
    "ddp-bf16": ddp_bf16,
    "ddp-power-sgd": ddp_power_sgd,
    "ddp-fp16-hook": ddp_fp16_hook,
    "ddp-no-sync": ddp_no_sync,
    "ddp-join": lambda: joined(ddp()),
    "ddp-join-zero": ddp_join_zero,
    "ddp-uneven": ddp_uneven,
    "ddp-batch-norm": ddp_batch_norm,
    "ddp-loader": ddp_loader,
    "ddp-gathered": ddp_gathered,
    "by-hand": by_hand,
    "data-parallel": lambda: loop(DataParallel(Net())),
    "zero": zero,
    "zero-static": lambda: zero(static_graph=True, gradient_as_bucket_view=True),
    "fsdp2": lambda: loop(sharded()),
    "fsdp2-mixed": lambda: loop(sharded(mp_policy=LOW)),
    "fsdp2-kept": lambda: loop(sharded(reshard_after_forward=False)),
    "fsdp2-checkpointed": lambda: loop(sharded(Checkpointed, mp_policy=LOW)),
    "fsdp2-compiled": fsdp2_compiled,
    "fsdp2-compiled-autograd": fsdp2_compiled_autograd,
    "fsdp2-accumulate": fsdp2_accumulate,
    "fsdp2-saved": fsdp2_saved,
    "fsdp1": lambda: loop(fsdp1(use_orig_params=True)),
    "fsdp1-flat": lambda: loop(fsdp1()),
    "hybrid": hybrid,
    "tp": tensor_parallel,
    "tp-sequence": sequence_parallel,
    "tp-loss": parallel_loss,
    "tp-fsdp2": tensor_parallel_sharded,
    "pipeline-gpipe": lambda: pipeline("ScheduleGPipe"),
    "pipeline-1f1b": lambda: pipeline("Schedule1F1B"),
    "pipeline-interleaved": lambda: pipeline("ScheduleInterleaved1F1B", 2),
    "pipeline-zero-bubble": lambda: pipeline("ScheduleInterleavedZeroBubble", 2),
    "accelerate": accelerate,
}


def main(name):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    JOBS[name]()
    tell(digest([torch.random.get_rng_state(), Job.own.get_state(), Job.shared.get_state()]))
    tell(random.random(), np.random.rand())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
