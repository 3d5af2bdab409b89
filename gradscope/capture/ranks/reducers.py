"""Follows DDP models: which forward and backward passes they reduce, and what a step then uses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.state import TrainingState
from gradscope.recording.evidence.ranks import Synchronisation, WrappedModel
from gradscope.target import members

_LOCATED = 24
"""Number of first steps in which every forward is located: the line hardly changes later."""

_SENTINELS = 3
"""Number of parameters of a model whose gradients show whether a backward reached it."""


@dataclass(slots=True)
class Pass:
    """A backward that reached a DDP model."""

    how: Synchronisation
    forward: int | None
    """Line (a site) of the forward of the DDP model, or of the call around it."""
    backward: int | None


@dataclass(slots=True)
class Reducer:
    """A DDP model, and what happened to it since the last step that used it."""

    model: ref[DistributedDataParallel]
    name: str
    site: int | None
    sentinels: list[WeakTensor[Tensor]]
    modules: frozenset[int]
    """`id`s of the modules inside."""
    parameters: frozenset[int]
    """`id`s of the parameters whose gradients it reduces: it never learns of later ones."""
    forward: Synchronisation | None = None
    """How its last forward since the last backward prepared for it; None without a forward."""
    forward_site: int | None = None
    has_forward: bool = False
    """Whether its forward ran since the last step."""
    states: tuple[object, ...] = ()
    passes: list[Pass] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    """`id`s of parameters that were told to be unknown to it."""


class Reducers:
    """The DDP models of a script.

    Args:
        training: State of the training.
        log: Receives what is observed.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self.known: list[Reducer] = []

    def made(self, model: DistributedDataParallel, frame: FrameType) -> None:
        """Add a model that was wrapped."""
        site = self._log.site(self._training.locations.of(frame))
        # A few gradients show whether a backward reached the model: looking at all would be slow.
        parameters = list(reduced_by(model))
        chosen = {0, len(parameters) // 2, len(parameters) - 1} if parameters else set()
        held = frozenset(map(id, parameters))
        # A model that is wrapped again leaves its first wrapper unused.
        self.known = [one for one in self.known if held.isdisjoint(one.parameters)]
        self.known.append(
            Reducer(
                model=ref(model),
                name=type(model.module).__name__,
                site=site,
                sentinels=[WeakTensor(parameters[one]) for one in sorted(chosen)[:_SENTINELS]],
                modules=frozenset(map(id, members.modules(model.module))),
                parameters=held,
            )
        )
        self._log.add(self._record(model, site))
        for name in getattr(model, "parameters_to_ignore", ()):
            self._log.note("ignored", site, str(name))

    def kinds(self, module: nn.Module) -> list[object]:
        """Return data type and device of a few reduced parameters of a model or a part of it."""
        if not any(id(module) in one.modules or one.model() is module for one in self.known):
            return []
        held = (one() for model in self.known for one in model.sentinels)
        return [None if one is None else (one.dtype, one.device) for one in held]

    def converted(self, module: nn.Module, before: list[object], frame: FrameType) -> None:
        """Note a conversion that gave parameters another type: their hooks of DDP are lost."""
        # Data of another type or device makes torch drop a parameter's `AccumulateGrad` node, and
        # DDP's hook belongs to the old node.
        if before != self.kinds(module):
            site = self._log.site(self._training.locations.of(frame))
            self._log.note("converted", site, type(module).__name__)

    def _record(self, model: DistributedDataParallel, site: int | None) -> WrappedModel:
        norms = [one for one in members.modules(model.module) if isinstance(one, _BatchNorm)]
        own = [one for one in norms if not isinstance(one, SyncBatchNorm)]
        definitions = self._training.models.records.definitions
        made = definitions.modules.get(own[0]) if own else None
        options = {
            "broadcast_buffers": getattr(model, "broadcast_buffers", True),
            "find_unused_parameters": getattr(model, "find_unused_parameters", False),
            "static_graph": getattr(model, "static_graph", False),
            "batch_norms": len(own),
            "parameters": sum(1 for _ in reduced_by(model)),
        }
        return WrappedModel(
            kind="DDP",
            name=type(model.module).__name__,
            site=site,
            step=self._log.step,
            options=tuple((name, float(value)) for name, value in options.items()),
            batch_norm=self._log.line(made),
        )

    def reduced(self) -> dict[int, int]:
        """Return the number of ranks by `id` of each parameter that a DDP model reduces."""
        found: dict[int, int] = {}
        for one in self.known:
            model = one.model()
            if model is not None and dist.is_initialized():
                size = dist.get_world_size(model.process_group)
                found |= dict.fromkeys(one.parameters, size)
        return found

    def forward(self, model: DistributedDataParallel, frame: FrameType) -> None:
        """Note that a DDP model's forward starts; no tensor is read."""
        one = self._of(model)
        if one is None or not torch.is_grad_enabled():
            return
        # DDP's reducer is prepared in forward: `no_sync` around backward alone has no effect.
        one.forward = "reduced" if model.require_backward_grad_sync else "no-sync"
        one.has_forward = True
        if one.forward_site is None or self._log.step < _LOCATED:
            self._training.guard.run(self._locate, one, frame)

    def _locate(self, one: Reducer, frame: FrameType) -> None:
        one.forward_site = self._log.site(self._training.locations.of(frame))

    def _of(self, model: DistributedDataParallel) -> Reducer | None:
        return next((one for one in self.known if one.model() is model), None)

    def backward_begins(self) -> None:
        """Note the state of the gradients before a backward."""
        for one in self.known:
            one.states = tuple(_states(one.sentinels))
            model = one.model()
            if one.forward == "reduced" and model and not model.require_backward_grad_sync:
                self._log.note("no-sync-late", one.forward_site, one.name, {}, (one.site,))

    def backward_ended(self, called: "dict[int, int | None]", backward: int | None) -> Pass | None:
        """Note which models a backward reached, and return the pass of the first.

        Args:
            called: By `id` of a module that was called outside of DDP: the line (a site).
            backward: Line (a site) of the backward.
        """
        found: Pass | None = None
        for one in self.known:
            if tuple(_states(one.sentinels)) == one.states:
                continue
            how: Synchronisation = one.forward or ("reduced" if one.has_forward else "around")
            site = one.forward_site
            if how == "around":
                lines = (line for key, line in called.items() if key in one.modules)
                site = next(lines, None)
            one.passes.append(Pass(how, site, backward))
            one.forward = None
            found = found or one.passes[-1]
        return found

    @property
    def misses_line(self) -> bool:
        """Whether a model was called around DDP at an unknown line."""
        return any(p.how == "around" and p.forward is None for r in self.known for p in r.passes)

    def step_begins(self, held: set[int], *, is_by_hand: bool, step: int | None) -> None:
        """Judge nothing, but note how the gradients that a step uses came about.

        Args:
            held: `id`s of the parameters of the optimizer.
            is_by_hand: Whether the script itself ran a collective on gradients.
            step: Line (a site) of the step.
        """
        for one in self.known:
            parameters = [p for r in one.sentinels if (p := r()) is not None]
            if not one.passes or not any(id(p) in held for p in parameters):
                continue
            passes, one.passes = one.passes, []
            one.has_forward = False
            last, reduced = passes[-1], [p for p in passes if p.how == "reduced"]
            if last.how in ("no-sync", "around") and not is_by_hand:
                kind = f"step-after-{last.how}"
                related = (last.backward, step, one.site)
                numbers = {"passes": float(len(passes)), "reduced": float(len(reduced))}
                self._log.note(kind, last.forward, one.name, numbers, related)
            elif len(reduced) > 1:
                numbers = {"passes": float(len(passes)), "reduced": float(len(reduced))}
                lines = (reduced[0].backward, step)
                self._log.note("reduced-early", reduced[0].forward, one.name, numbers, lines)

    def unknown(self, held: set[int]) -> Iterator[tuple[Reducer, str, Tensor, nn.Module]]:
        """Yield parameters that get gradients and that the reducer of their model does not know.

        Args:
            held: `id`s of the parameters of the optimizer.
        """
        for one in self.known:
            model = one.model()
            if model is None:
                continue
            known = one.parameters
            ignored: Iterable[str] = getattr(model, "parameters_to_ignore", ())
            for path, module in members.named_modules(model.module):
                for name, parameter in members.own_parameters(module):
                    full = f"{path}.{name}" if path else name
                    is_new = id(parameter) not in known and id(parameter) not in one.told
                    if not is_new or id(parameter) not in held or full in ignored:
                        continue
                    if parameter.requires_grad and parameter.grad is not None:
                        one.told.add(id(parameter))
                        yield one, full, parameter, module


def reduced_by(model: DistributedDataParallel) -> Iterator[Tensor]:
    """Yield the parameters whose gradients a DDP model reduces, as it is being constructed."""
    for parameter in getattr(model, "_module_parameters", ()):
        if parameter.requires_grad:
            yield parameter


def _states(sentinels: Iterable[WeakTensor[Any]]) -> Iterator[object]:
    for reference in sentinels:
        parameter = reference()
        gradient = None if parameter is None else parameter.grad
        # The first accumulation replaces `.grad`, later ones write in place and raise its version.
        yield None if gradient is None else (id(gradient), gradient._version)
