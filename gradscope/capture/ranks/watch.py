"""Records a rank of a distributed job: its place, its parameters, and what it does with others."""

import sys
import time
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gradscope.capture.compiler import is_traced, untraced
from gradscope.capture.observed_calls import argument
from gradscope.capture.ranks.buffers import Buffers
from gradscope.capture.ranks.collectives import Collectives
from gradscope.capture.ranks.compared_numbers import ComparedNumbers, is_due, is_due_later
from gradscope.capture.ranks.gather_flow import GatherOrder
from gradscope.capture.ranks.observations import RankLog, digest, line_outside, row_digests
from gradscope.capture.ranks.parameter_uses import ParameterUses
from gradscope.capture.ranks.placement import (
    identity,
    is_fsdp2,
    is_in_group,
    is_launched,
    waits_for_reduction,
)
from gradscope.capture.ranks.rank_arithmetic import rank_arithmetic, undivided_sum
from gradscope.capture.ranks.reducers import Pass, Reducers
from gradscope.capture.ranks.sources import Sources
from gradscope.capture.ranks.sync_checks import SyncChecks, replicas
from gradscope.capture.ranks.written_lines import written_lines
from gradscope.capture.step.graph import tensors
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.optimizers import parameters_of
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.step_captures import Taken
from gradscope.recording.evidence.ranks import RankPass
from gradscope.target import members

_PASSES = 24
"""Number of first backward passes that are recorded with their batch."""

_LET_GO_SECONDS = 0.02
"""Seconds for which other threads get the interpreter before the process group is destroyed."""

_SHADOW = "main_hook"
"""Function with which `torch.distributed.algorithms.join` makes the calls of a rank that has no
more batches, in step with the others."""

_SHADOW_DEPTH = 8
"""Number of frames between such a call and the step that it makes."""


class RankWatch:
    """Records what a rank does with others. Without a process group it observes nothing.

    Args:
        training: State of the training.
    """

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self.log = RankLog(training.event_log.sites)
        self._reducers = Reducers(training, self.log)
        self._collectives = Collectives(training, self.log)
        self._sources = Sources(training, self.log)
        self._numbers = ComparedNumbers(training, self.log)
        self._buffers = Buffers(training, self.log, self._reducers)
        self._uses = ParameterUses(training, self.log)
        self._order = GatherOrder(training, self.log)
        self._clock = time.time()
        self._patches: Patches | None = None
        """Where to replace functions once there are ranks; None if it was done."""
        self._observed: Patches | None = None
        self._forward_handle: RemovableHandle | None = None
        self.is_on = False  # the process group is ready
        self.sync_checks: SyncChecks | None = None
        """Compares replicas with rank 0 while the job runs; None if that is not wanted."""
        self._begun = self._passes = 0
        """Number of backward passes that began, and of those that ended without an exception."""
        self._stepping: int | None = None
        """`id` of the optimizer whose step runs."""
        self._held: tuple[tuple[int, ...], set[int]] = ((), set())
        """`id` of an optimizer, sizes of its groups, and `id`s of its parameters."""
        self._called: dict[int, int | None] = {}
        """By `id` of a module that was called outside of DDP since the last backward: the line."""
        self._first: tuple[int | None, int | None, str | None, tuple[int, ...]] | None = None
        """Line, rows, digest and digests of the rows of the first call of a model since the last
        backward."""
        self._backward: int | None = None
        self._files: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Start observing; collectives and data only where there are ranks."""
        if not dist.is_available():
            return
        self._patches = patches
        patches.wrap(distributed_c10d, "init_process_group", self._wrap_init)
        # `torch.distributed` re-exports the function: scripts call either name.
        patches.put(dist, "init_process_group", distributed_c10d.init_process_group)
        patches.wrap(DistributedDataParallel, "__init__", self._wrap_made)
        if is_launched() or is_in_group():
            self._observe()
        if is_in_group():
            self._training.guard.run(self._begin)

    def stop(self) -> None:
        """Stop observing."""
        self.is_on = False
        self._collectives.stop()
        self._watch_forwards(is_wanted=False)

    def _observe(self) -> None:
        patches, self._patches = self._patches, None
        if patches is None:
            return
        self._observed = patches
        patches.wrap(DistributedDataParallel, "_pre_forward", self._wrap_forward)
        patches.wrap(DistributedDataParallel, "register_comm_hook", self._wrap_hook)
        patches.wrap(nn.Module, "_apply", self._wrap_conversion)
        patches.wrap(distributed_c10d, "destroy_process_group", self._wrap_destroy)
        patches.put(dist, "destroy_process_group", distributed_c10d.destroy_process_group)
        self._collectives.install(patches)
        self._sources.install(patches)

    def _wrap_init(self, original: Function) -> Function:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            result = original(*args, **kwargs)
            self._training.guard.run(self._begin)
            return result

        return init_process_group

    def _wrap_hook(self, original: Function) -> Function:
        def register_comm_hook(model: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            hook = argument(args, kwargs, 1, "hook")
            self._training.guard.run(self._note_hook, hook, sys._getframe(1))
            return original(model, *args, **kwargs)

        return register_comm_hook

    def _wrap_conversion(self, original: Function) -> Function:
        def _apply(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            kinds = [] if is_traced() or not self.is_on else self._reducers.kinds(module)
            result = original(module, *args, **kwargs)
            if kinds:
                frame = sys._getframe(1)
                self._training.guard.run(self._reducers.converted, module, kinds, frame)
            return result

        return _apply

    def _note_hook(self, hook: object, frame: FrameType) -> None:
        name = str(getattr(hook, "__name__", type(hook).__name__))
        site = self.log.site(self._training.locations.of(frame))
        self.log.note("hook", site, name)
        if (line := undivided_sum(hook)) is not None:
            self.log.note("summing-hook", self.log.line(line), name, {}, (site,))

    def _wrap_destroy(self, original: Function) -> Function:
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if self.is_on:
                # A gloo thread that frees its last work takes the interpreter's lock for a mode of
                # a captured step. A destructor that waits for it and holds the lock never returns.
                time.sleep(_LET_GO_SECONDS)
            return original(*args, **kwargs)

        return destroy_process_group

    def _begin(self) -> None:
        """Record the identity, and start: the process group is ready."""
        if self.is_on or not is_in_group():
            return
        self._training.record_in_full()
        self._observe()
        self.is_on = True
        self._collectives.begin(self._observed)
        self.log.add(identity(self._clock))
        self._watch_forwards(is_wanted=True)
        self._training.flush_ranks()

    def _watch_forwards(self, *, is_wanted: bool) -> None:
        """Observe the calls of modules, or stop: each costs a microsecond."""
        handle = self._forward_handle
        if is_wanted and handle is None:
            self._forward_handle = register_module_forward_pre_hook(self._enter_forward)
        elif not is_wanted and handle is not None:
            handle.remove()
            self._forward_handle = None

    def _wrap_made(self, original: Function) -> Function:
        def __init__(model: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
            original(model, *args, **kwargs)
            if not is_traced() and is_in_group():
                self._training.guard.run(self._begin)
                self._training.guard.run(self._reducers.made, model, sys._getframe(1))

        return __init__

    def _wrap_forward(self, original: Function) -> Function:
        def _pre_forward(model: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not is_traced() and self.is_on:
                self._reducers.forward(model, sys._getframe(1))
            return original(model, *args, **kwargs)

        return _pre_forward

    @untraced
    def _enter_forward(self, module: nn.Module, args: tuple[object, ...]) -> None:
        if not self.is_on or is_traced():
            return
        if torch.is_grad_enabled():
            self._training.guard.glance(self._see_call, module, args, sys._getframe(1))
        if self._uses.is_new(module):
            self._training.guard.glance(self._see_use, module, sys._getframe(1))

    def _see_use(self, module: nn.Module, frame: FrameType) -> None:
        self._uses.see(module, line_outside(self._training.locations.users(frame)))

    def _see_call(self, module: nn.Module, args: tuple[object, ...], frame: FrameType) -> None:
        """Note the first call of a model, and calls around DDP or of what FSDP2 shards."""
        self._order.see(module, frame)
        is_first = self._first is None
        if not is_first and (id(module) in self._called or not self._reducers.known):
            return
        site = self.log.line(line_outside(self._training.locations.users(frame)))
        if is_first:
            found = list(tensors(args))
            rows = next((one.shape[0] for one in found if one.dim()), None)
            is_wanted = self._passes < _PASSES and module.training
            code = digest(found) if is_wanted else None
            each = row_digests(found[0]) if code is not None else ()
            self._first = (site, rows, code, each)
        if not isinstance(module, DistributedDataParallel):
            self._called.setdefault(id(module), site)

    def backward_begins(self, outputs: object, frame: FrameType) -> None:
        """Note that a backward starts.

        Args:
            outputs: Tensors to start from.
            frame: Frame of its caller.
        """
        self._backward = None
        self._begun += 1
        root = outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs
        self._collectives.backward_begins(root)
        self._reducers.backward_begins()
        if self._passes < _PASSES or self._reducers.misses_line:
            location = self._training.locations.of(frame)
            self._backward = self.log.site(location)
            self._note_written(frame)

    def _note_written(self, frame: FrameType) -> None:
        for one in self._training.locations.users(frame):
            file = one.f_code.co_filename
            if file in self._files:
                continue
            self._files.add(file)
            for kind, line in written_lines(file):
                self.log.note(f"written-{kind}", self.log.line(line))
            for operation, subject, line in rank_arithmetic(file):
                self.log.note(f"{operation}-by-ranks", self.log.line(line), subject)

    def backward_ended(self) -> None:
        """Note that a backward has ended without an exception."""
        self._collectives.backward_ended(self._backward)
        found = self._reducers.backward_ended(self._called, self._backward)
        if self._passes < _PASSES:
            self.log.add(self._pass(found))
        self._passes += 1
        self._sources.backwards = self._passes
        self._first, self._called = None, {}
        is_wanted = self._passes < _PASSES or self._reducers.misses_line
        self._watch_forwards(is_wanted=is_wanted)
        self._numbers.backward_ended()

    def _pass(self, found: Pass | None) -> RankPass:
        site, rows, code, each = self._first or (None, None, None, ())
        return RankPass(
            number=self._passes,
            step=self.log.step,
            synchronisation="unwrapped" if found is None else found.how,
            forward=site if found is None or found.forward is None else found.forward,
            backward=self._backward,
            rows=rows,
            digest=code,
            row_digests=each,
            gathers=self._order.take(),
        )

    def enter_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Note that an optimizer's step begins.

        Args:
            optimizer: The optimizer.
            frame: Frame of its caller.
        """
        # A wrapper's step calls that of the wrapped optimizer: only the outer one counts.
        if self._stepping in (None, id(optimizer)) and not is_traced():
            self._stepping = id(optimizer)
            self._training.guard.run(self._step_begins, optimizer, frame)

    def _step_begins(self, optimizer: Optimizer, frame: FrameType) -> None:
        window = self._collectives.step_begins(optimizer)
        ids = self._ids_of(optimizer)
        step = None
        is_shadow = _is_shadow(frame)
        if self.log.step < _PASSES or is_shadow:
            step = self.log.site(self._training.locations.of(frame))
        if is_shadow:
            self.log.note("shadow-step", step)
        self._reducers.step_begins(ids, is_by_hand=window.is_by_hand, step=step)
        self._numbers.note_rates(optimizer)
        if self.sync_checks is not None and self.sync_checks.is_due(self.log.step):
            self._compare(self.sync_checks, ids, frame, is_by_hand=window.is_by_hand)
        if is_due(self.log.step):
            if not window.is_by_hand:
                self._note_unknown(ids, step)
                self._note_unreduced(ids, step)
            self._numbers.step_begins(ids)
            self._buffers.measure(is_by_hand=window.is_by_hand)

    def _ids_of(self, optimizer: Optimizer) -> set[int]:
        """Return the `id`s of the parameters of an optimizer, built anew where its groups change.

        A step that ranks measure builds them anew in any case.
        """
        key = (id(optimizer), *(len(group["params"]) for group in optimizer.param_groups))
        if key != self._held[0] or is_due(self.log.step):
            self._held = key, set(map(id, parameters_of(optimizer)))
        return self._held[1]

    def _compare(
        self, checks: SyncChecks, held: set[int], frame: FrameType, *, is_by_hand: bool
    ) -> None:
        """Compare the replicas of an optimizer with those of rank 0."""
        found = replicas(self._training, self._reducers.reduced(), held, is_by_hand=is_by_hand)
        site = self.log.site(self._training.locations.of(frame))
        checks.check(self.log.step, found, site)
        self._training.flush_ranks()

    def _note_unknown(self, ids: set[int], step: int | None) -> None:
        definitions = self._training.models.records.definitions
        for one, name, _, module in self._reducers.unknown(ids):
            line = definitions.replacements.get(module)
            made = definitions.modules.get(module)
            site = self.log.line(line or made)
            numbers = {"replaced": float(line is not None)}
            self.log.note("unknown-parameter", site, name, numbers, (one.site, step))

    def _note_unreduced(self, ids: set[int], step: int | None) -> None:
        """Note gradients that FSDP2 has not reduced, of the parameters of an optimizer."""
        for module in self._training.models.modules:
            is_stepped = is_fsdp2(module) and any(
                id(one) in ids for one in members.parameters(module)
            )
            if is_stepped and waits_for_reduction(module):
                kind = "step-before-reduction"
                self.log.note(kind, step, type(module).__name__, {}, (self._backward,))
                return

    def leave_step(self, optimizer: Optimizer) -> None:
        """Note that an optimizer's step has ended."""
        if self._stepping == id(optimizer):
            self._stepping = None
            self._numbers.step_ended()
            self.log.step += 1
            if is_due_later(self.log.step - 1):  # the first steps are all written by themselves
                self._training.guard.run(self._training.flush_ranks)

    def finish(self) -> None:
        """Record when the process ended, and how many passes it began."""
        if self.is_on:
            self.log.note("end", None, "", {"clock": time.time(), "passes": float(self._begun)})

    def take(self) -> Taken:
        """Return what is new since the last call; parameters have their indices by now."""
        if not self.is_on:
            return Taken((), ())
        self._numbers.record_placement(self._reducers)
        self._numbers.settle()
        self._uses.settle()
        return self.log.take()


def _is_shadow(frame: FrameType | None) -> bool:
    """Return whether a rank without a batch steps for the sake of the others."""
    for _ in range(_SHADOW_DEPTH):
        if frame is None:
            return False
        if frame.f_code.co_name == _SHADOW:
            return True
        frame = frame.f_back
    return False
