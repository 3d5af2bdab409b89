"""Trains a small model sharded in several ways; prints results to compare with gradscope.

Run by `test_sharded_jobs.py`: by python alone, by `gradscope run`, and under torchrun. With the
argument `watch` it trains twice, the second time watched, and compares the two.
"""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def sharded(kind, model, mesh):
    if kind == "flat":
        return FullyShardedDataParallel(
            model, device_mesh=mesh, device_id=torch.device("cpu"), use_orig_params=True
        )
    if kind == "columns":
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        return parallelize_module(model[1], mesh, plan) and model
    low = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    options = {"mp_policy": low} if kind == "half" else {}
    if kind != "whole":
        fully_shard(model[1], mesh=mesh, reshard_after_forward=kind == "resharded", **options)
    return fully_shard(model, mesh=mesh, **options)


KINDS = ("whole", "resharded", "half", "flat", "columns")


def train(kind, mesh):
    torch.manual_seed(0)
    model = sharded(kind, nn.Sequential(nn.Linear(4, 8), Block(), nn.Linear(8, 3)), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(0 if kind == "columns" else dist.get_rank())
    told = []
    for _ in range(6):
        x, y = torch.randn(6, 4), torch.randint(3, (6,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        told.append(loss.item().hex())
    digest = hashlib.sha256()
    for weight in model.parameters():
        local = getattr(weight, "_local_tensor", weight)
        digest.update(bytes(local.detach().contiguous().view(torch.uint8).flatten().tolist()))
    return [kind, *told, digest.hexdigest()]


def main():
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    alone = {} if "MASTER_ADDR" in os.environ else {"store": dist.HashStore()}
    options = {"rank": 0, "world_size": 1, **alone} if alone else {}
    dist.init_process_group("gloo", **options)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    bare = [train(kind, mesh) for kind in KINDS]
    lines = [" ".join((f"rank{dist.get_rank()}", *told)) + "\n" for told in bare]
    if "watch" in sys.argv:
        import gradscope

        for kind, told in zip(KINDS, bare, strict=True):
            with gradscope.watch() as watch:
                assert train(kind, mesh) == told, kind
            report = watch.report()
            lines.append(f"{kind} {len(report.recording.steps)} {report.findings}\n")
    sys.stdout.write("".join(lines))
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
