"""Frozen copies of a network that stay as they were while the network learns."""

from collections.abc import Iterator
from typing import NamedTuple

from gradscope.recording.records import Recording, Site
from gradscope.rules.context import RuleContext


class StillCopy(NamedTuple):
    """A network, and a frozen copy of it that the forward uses."""

    copy: str
    """Path of the copy."""
    network: str
    tensors: int
    site: Site | None
    """Line that made the copy, if it is known."""


def still_copies(context: RuleContext) -> Iterator[StillCopy]:
    """Yield the copies that are equal to a network in the first captured step, and never change.

    The network has changed by the last captured step.
    """
    captured = [one.recording for one in context.recording.captured_steps]
    if len(captured) < 2:
        return
    first, last = captured[0], captured[-1]
    before, after = _modules(first), _modules(last)
    called = {last.modules[call.module].path for call in last.calls}
    fixed = {path for path in before if _is_fixed(first, path) and path in called}
    for copy in sorted(fixed):
        weights = before[copy]
        # A part of a fixed network is told with the whole.
        if copy.rpartition(".")[0] in fixed or not weights or after.get(copy) != weights:
            continue
        for network, others in before.items():
            # Norms that were not measured are equal without meaning anything.
            is_same = network != copy and others == weights and None not in weights.values()
            if is_same and not _is_fixed(first, network) and after.get(network) != others:
                yield StillCopy(copy, network, len(weights), _site(last, copy))
                break


def _modules(recording: Recording) -> dict[str, dict[str, float | None]]:
    """Return the norms of every module's parameters, by each of its paths."""
    found: dict[str, dict[str, float | None]] = {}
    norms = {stat.parameter: stat.weight_norm for stat in recording.parameter_stats}
    for one in recording.parameters:
        for name in (one.name, *one.aliases):
            parts = name.split(".")
            for depth in range(1, len(parts)):
                inner = found.setdefault(".".join(parts[:depth]), {})
                inner[".".join(parts[depth:])] = norms.get(one.index)
    return found


def _is_fixed(recording: Recording, path: str) -> bool:
    own = [one for one in recording.parameters if one.name.startswith(f"{path}.")]
    return not any(one.requires_grad for one in own)


def _site(recording: Recording, path: str) -> Site | None:
    module = next(one for one in recording.modules if one.path == path)
    return None if module.site is None else recording.sites[module.site]
