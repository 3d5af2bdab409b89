"""Observes what decides the data and the weights of a rank: samplers, loaders, seeds, loading."""

import functools
import sys
import zlib
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

from gradscope.capture.compiler import is_traced, skip_frame
from gradscope.capture.interpreter import uncounted
from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.state import TrainingState

_INDICES = 4_096
"""Number of indices of a subset that its digest reads."""


class Sources:
    """Observes samplers, loaders, seeds and loading.

    Args:
        training: State of the training.
        log: Receives what is observed.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._made: WeakKeyDictionary[DistributedSampler[Any], int | None] = WeakKeyDictionary()
        self._passes: WeakKeyDictionary[DistributedSampler[Any], dict[int, int]] = (
            WeakKeyDictionary()
        )
        """By sampler: how often it was iterated with each epoch, training between."""
        self._last: WeakKeyDictionary[DistributedSampler[Any], int] = WeakKeyDictionary()
        self._line: int | None = None
        """Line (a site) where a loader was iterated last."""
        self.backwards = 0
        """Number of backward passes."""

    def install(self, patches: Patches) -> None:
        """Start observing."""
        patches.wrap(DistributedSampler, "__init__", self._after(self._sampler_made))
        patches.wrap(DistributedSampler, "__iter__", self._before(self._iterated))
        patches.wrap(DataLoader, "__init__", self._after(self._loader_made))
        patches.wrap(DataLoader, "__iter__", self._before(self._loader_iterated))
        patches.put(nn.Module, "load_state_dict", self._loading())
        patches.wrap(torch.random, "manual_seed", self._seeding)
        # torch re-exports the function: scripts call either name.
        patches.put(torch, "manual_seed", torch.random.manual_seed)

    def _after(self, note: Callable[[Any, FrameType], None]) -> Callable[[Function], Function]:
        def wrap(original: Function) -> Function:
            def observed(subject: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
                result = original(subject, *args, **kwargs)
                if not is_traced():
                    self._training.guard.glance(note, subject, sys._getframe(1))
                return result

            return observed

        return wrap

    def _before(self, note: Callable[[Any, FrameType], None]) -> Callable[[Function], Function]:
        def wrap(original: Function) -> Function:
            def observed(subject: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
                if not is_traced():
                    self._training.guard.glance(note, subject, sys._getframe(1))
                return original(subject, *args, **kwargs)

            return observed

        return wrap

    def _loading(self) -> Function:
        # The class attribute may be a descriptor, which records the module when it is bound.
        replaced = vars(nn.Module)["load_state_dict"]

        def bound(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return replaced.__get__(module, type(module))(*args, **kwargs)

        observed = uncounted(self._after(self._loaded)(uncounted(bound)))
        skip_frame(bound)
        skip_frame(observed)
        return functools.wraps(nn.Module.load_state_dict)(observed)

    def _seeding(self, original: Function) -> Function:
        def manual_seed(seed: Any) -> Any:  # noqa: ANN401
            if not is_traced():
                self._training.guard.glance(self._seeded, seed, sys._getframe(1))
            return original(seed)

        return manual_seed

    def _site(self, frame: FrameType) -> int | None:
        return self._log.site(self._training.locations.of(frame))

    def _seeded(self, seed: object, frame: FrameType) -> None:
        location = self._training.locations.of(frame)
        if isinstance(seed, int) and location.user is not None:
            numbers = {"seed": float(seed)}
            self._log.note("seed", self._log.site(location), "", numbers)

    def _loaded(self, module: nn.Module, frame: FrameType) -> None:
        location = self._training.locations.of(frame)
        if location.user is not None:
            self._log.note("load", self._log.site(location), type(module).__name__)

    def _loader_made(self, loader: DataLoader[Any], frame: FrameType) -> None:
        site = self._site(frame)
        has_sampler = isinstance(getattr(loader, "sampler", None), DistributedSampler)
        self._log.note("loader", site, "", {"distributed": float(has_sampler)})

    def _loader_iterated(self, loader: DataLoader[Any], frame: FrameType) -> None:
        self._line = self._site(frame)

    def _sampler_made(self, sampler: DistributedSampler[Any], frame: FrameType) -> None:
        self._made[sampler] = site = self._site(frame)
        numbers = {
            "rank": float(sampler.rank),
            "ranks": float(sampler.num_replicas),
            "seed": float(sampler.seed),
            "shuffle": float(sampler.shuffle),
        }
        if isinstance(sampler.dataset, Subset):
            # `hash` of a text differs between processes.
            numbers["subset"] = float(zlib.crc32(str(sampler.dataset.indices[:_INDICES]).encode()))
        self._log.note("sampler", site, type(sampler).__name__, numbers)

    def _iterated(self, sampler: DistributedSampler[Any], frame: FrameType) -> None:
        """Count the epochs in which a sampler gave the same order."""
        # A class with its own `set_epoch` may shuffle by something else than `epoch`.
        if not sampler.shuffle or type(sampler).set_epoch is not DistributedSampler.set_epoch:
            return
        passes = self._passes.setdefault(sampler, {})
        last = self._last.get(sampler)
        if last is not None and last == self.backwards:
            return  # it was not trained on
        self._last[sampler] = self.backwards
        passes[sampler.epoch] = passes.get(sampler.epoch, 0) + 1
        if passes[sampler.epoch] > 1:
            numbers = {"epochs": float(sum(passes.values())), "alike": float(passes[sampler.epoch])}
            self._log.note(
                "same-order",
                self._made.get(sampler),
                type(sampler).__name__,
                numbers,
                (self._line,),
            )
