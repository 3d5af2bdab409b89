"""A small model, and a loop that tells its losses, weights and gradients to the bit."""

import hashlib
import os
import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(torch.relu(self.up(self.norm(x)))))


class Net(nn.Module):
    is_checkpointed = False

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        return self.head(self.body(x))

    def body(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return x


class Checkpointed(Net):
    is_checkpointed = True


class Part(Net):
    """Uses a layer in every second pass, and not in the same one on all ranks."""

    def __init__(self):
        super().__init__()
        self.extra, self.passes = nn.Linear(16, 4), 0

    def forward(self, x):
        self.passes += 1
        hidden = self.body(x)
        uses_all = (self.passes + Job.rank) % 2
        return self.head(hidden) + (self.extra(hidden) if uses_all else 0)


class Job:
    """The rank of this process, and what it draws and tells."""

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    own = torch.Generator().manual_seed(100 + rank)
    shared = torch.Generator().manual_seed(99)


def batch(rows=8, generator=Job.own):
    x = torch.randn(rows, 8, generator=generator)
    return x, (x.sum(1) > 0).long() + 2 * (x[:, 0] > 0).long()


def same_batch():
    return batch(generator=Job.shared)


def digest(tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            found.update(b"none")
            continue
        local = getattr(tensor, "_local_tensor", tensor).detach()
        found.update(f"{local.dtype} {tuple(local.shape)}".encode())
        found.update(local.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def tell(*words):
    sys.stdout.write(" ".join(map(str, (Job.rank, *words))) + "\n")


def told(parameters, loss):
    """Tell a loss, and digests of weights and gradients."""
    parameters = list(parameters)
    number = None if loss is None else float(loss.detach()).hex()
    tell(number, digest(parameters), digest(one.grad for one in parameters))


def loop(model, optimizer=None, *, steps=8, get=batch, forward=None, clip=0.5):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        x, y = get()
        loss = cross_entropy((forward or model)(x).float(), y)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        told(model.parameters(), loss)
        optimizer.step()
    told(model.parameters(), loss)
    tell(digest(model.buffers()))
