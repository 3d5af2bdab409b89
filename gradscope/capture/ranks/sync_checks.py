"""Compares digests of replicas between ranks while a job runs.

Ranks exchange digests through the key-value store of the process group. No collective is started,
so the order of the job's own collectives stays as it is, and no process group is added. Rank 0
writes its digests and waits for nobody. The other ranks read them, and wait for them for a limited
time.
"""

import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from gradscope.capture.interpreter import tell
from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.reading import is_plain
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.state import TrainingState
from gradscope.frozen import dataclass
from gradscope.phrasing import counted

# Far below the 10 minutes after which NCCL's watchdog ends a job that waits in a collective.
WAIT_SECONDS = 60.0
"""Seconds for which a rank waits for the digests of rank 0."""

_KEPT = 16
"""Number of checks whose digests stay in the store, for ranks that are behind."""

_ABSENT, _HEAD = 0, 8
_POLL_SECONDS = (0.0005, 0.02)
"""Shortest and longest pause between two reads of the store."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MASK = (1 << 64) - 1
_WIDTH = 256
"""Number of elements in a row that is hashed."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A parameter of which every rank has the same elements."""

    entry: Entry
    weight: Tensor
    gradient: Tensor | None


class SyncChecks:
    """Compares the replicas of this rank with those of rank 0 in every Nth step.

    Args:
        training: State of the training.
        log: Receives the first difference, and why checks ended.
        every: Number of steps from one check to the next.
    """

    def __init__(self, training: TrainingState, log: RankLog, every: int) -> None:
        self._training, self._log, self._every = training, log, every
        self._is_over = self._was_empty = False

    def is_due(self, step: int) -> bool:
        """Return whether replicas are compared before a step."""
        return not self._is_over and step % self._every == 0

    def check(self, step: int, replicas: Sequence[Replica], site: int | None) -> None:
        """Compare the replicas before a step; after the first difference checks end.

        Args:
            step: Number of optimizer steps made before.
            replicas: Parameters, in the same order on all ranks.
            site: Line of the step.
        """
        if dist.get_world_size() == 1:
            self._is_over = True
            return
        if not replicas and not self._was_empty:
            self._was_empty = True
            self._note("sync-empty", "nothing to compare: no parameter is replicated on all ranks")
        own = digests(replicas)
        try:
            first = self._exchanged(step, own)
        except RuntimeError as error:  # the store's: its process has ended
            self._end(f"rank 0 is gone ({_line(error)})", step)
            return
        if first is None:
            self._end(f"rank 0 did not answer within {WAIT_SECONDS:g} s", step)
        elif first != own:
            self._differs(step, replicas, (first, own), site)

    def _exchanged(self, step: int, own: bytes) -> bytes | None:
        """Return the digests of rank 0; None if they did not come in time."""
        store = _store()
        if dist.get_rank() == 0:
            store.set(_key(step), own)
            # The store would grow for the whole training: old digests are deleted.
            if step >= _KEPT * self._every:
                _forget(store, _key(step - _KEPT * self._every))
            return own
        end = time.monotonic() + WAIT_SECONDS
        pause, longest = _POLL_SECONDS
        # A blocking read would lock the store, which other threads of torch use.
        while not store.check([_key(step)]):
            if time.monotonic() > end:
                return None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return bytes(store.get(_key(step)))

    def _differs(
        self,
        step: int,
        replicas: Sequence[Replica],
        both: tuple[bytes, bytes],
        site: int | None,
    ) -> None:
        rank = dist.get_rank()
        self._is_over = True
        if len(both[0]) != len(both[1]):
            count = (len(both[0]) - _HEAD) // 16
            what = f"compares {len(replicas):,} parameters, rank 0 {count:,}"
            self._note("sync-ended", f"{what}: sync checks end at step {step:,}")
            return
        found = list(_differing(*both))
        position, kind = found[0]
        name = self._name(replicas[position].entry)
        parameters = len({one for one, _ in found})
        numbers = {
            "rank": float(rank),
            "is_gradient": float(kind == "gradient"),
            "parameters": float(parameters),
            "compared": float(len(replicas)),
        }
        self._log.note("sync-difference", site, name, numbers)
        share = f"{parameters:,} of {counted(len(replicas), 'parameter')}"
        tell(f"rank {rank} differs from rank 0 before step {step:,}: {kind} of {name} ({share})")

    def _name(self, entry: Entry) -> str:
        self._training.take_in()
        names = self._training.models.records.names
        return entry.name if entry.index is None else names[entry.index]

    def _end(self, why: str, step: int) -> None:
        self._is_over = True
        self._note("sync-ended", f"sync checks end at step {step:,}: {why}")

    def _note(self, kind: str, text: str) -> None:
        self._log.note(kind, None, text)
        tell(f"rank {dist.get_rank()}: {text}")


def replicas(
    training: TrainingState, reduced: Mapping[int, int], held: Collection[int], *, is_by_hand: bool
) -> list[Replica]:
    """Return the parameters of an optimizer of which every rank has the same elements.

    Args:
        training: State of the training.
        reduced: By `id` of a parameter that a DDP model reduces: number of its ranks.
        held: `id`s of the parameters of the optimizer.
        is_by_hand: Whether the script itself has reduced gradients of this step.
    """
    ranks = dist.get_world_size()
    found = []
    for entry in training.gradient_state.entries:
        one = entry.parameter()
        if one is None or id(one) not in held or not is_plain(local_part(one)):
            continue
        placements, mesh = getattr(one, "placements", None), getattr(one, "device_mesh", None)
        if placements is not None and mesh is not None:
            is_whole = all(placement.is_replicate() for placement in placements)
            is_replica = is_whole and mesh.size() == ranks
        else:
            is_replica = reduced.get(id(one), ranks if is_by_hand else 0) == ranks
        if is_replica:
            found.append(Replica(entry, one, one.grad))
    return found


def digests(replicas: Sequence[Replica]) -> bytes:
    """Return the number of parameters, and the digests of each weight and gradient."""
    with torch.no_grad():
        values = [one.weight for one in replicas]
        present = [one.gradient for one in replicas if one.gradient is not None]
        numbers = iter(_digests([*values, *present]))
    weights = [next(numbers) for _ in values]
    # A missing gradient differs from every other, up to one in 2**64.
    gradients = [_ABSENT if one.gradient is None else next(numbers) or 1 for one in replicas]
    return struct.pack(f"<q{2 * len(replicas)}Q", len(replicas), *weights, *gradients)


def _digests(tensors: Sequence[Tensor]) -> list[int]:
    """Return a number for each tensor, with one transfer from each device."""
    by_device: dict[torch.device, list[int]] = {}
    # Digests stay on their device until all are computed, for one transfer.
    found = [_digest(tensor.detach()) for tensor in tensors]
    for position, one in enumerate(found):
        by_device.setdefault(one.device, []).append(position)
    numbers = [0] * len(found)
    for positions in by_device.values():
        row = torch.stack([found[position] for position in positions]).cpu()
        for position, number in zip(positions, row.tolist(), strict=True):
            # `tolist` returns signed numbers, and the digests are packed as unsigned ones.
            numbers[position] = number & _MASK
    return numbers


def _digest(tensor: Tensor) -> Tensor:
    """Return a 64-bit digest of the bits of a tensor and of their positions, on its device."""
    local = local_part(tensor)
    parts = torch.view_as_real(local) if local.is_complex() else local
    # Bits, because NaN is unequal to itself, and -0.0 equal to 0.0.
    bits = parts.contiguous().view(_INTEGERS[parts.element_size()]).flatten()
    hashed = getattr(torch, "hash_tensor", None)
    if hashed is None:
        return _weighted(bits.to(torch.int64))
    # The hash is the same in any order: elements that change places change those of rows or
    # columns.
    size = len(bits) // _WIDTH * _WIDTH
    numbers = [bits[size:].to(torch.int64)]
    if size:
        rows = bits[:size].view(-1, _WIDTH)
        numbers += [hashed(rows, dim).view(torch.int64) for dim in (0, 1)]
    return _weighted(torch.cat(numbers))


def _weighted(numbers: Tensor) -> Tensor:
    """Return a sum of numbers that depends on their order."""
    # Odd factors are invertible modulo 2**64, so a single changed element always shows. Hashes of
    # low precision have only high bits, which the products would lose.
    mixed = numbers ^ (numbers >> 32)
    return (mixed * (1 + 2 * torch.arange(len(mixed), device=mixed.device))).sum()


def local_part(tensor: Tensor) -> Tensor:
    """Return the elements that this rank holds."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


def _differing(first: bytes, own: bytes) -> Iterator[tuple[int, str]]:
    """Yield positions of parameters that differ, with what of them does: weights before gradients.

    Unequal weights make unequal gradients.
    """
    (count,) = struct.unpack_from("<q", own)
    pairs = zip(
        struct.unpack_from(f"<{2 * count}Q", first, _HEAD),
        struct.unpack_from(f"<{2 * count}Q", own, _HEAD),
        strict=True,
    )
    for position, (other, mine) in enumerate(pairs):
        if other != mine:
            yield position % count, "weight" if position < count else "gradient"


def _store() -> Any:  # noqa: ANN401 - torch's store
    return distributed_c10d._get_default_store()


def _key(step: int) -> str:
    return f"gradscope/sync/{step}"


def _forget(store: Any, key: str) -> None:  # noqa: ANN401 - torch's store
    with suppress(RuntimeError, NotImplementedError):  # a store in files keeps all
        store.delete_key(key)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:80]
