"""The models of a script: modules called from outside any other module."""

import sys
import threading
from collections.abc import Callable, MutableMapping
from functools import partial
from types import FrameType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from gradscope.capture.compiler import is_traced, untraced
from gradscope.capture.naming import parameters_of, shape_of
from gradscope.capture.step.graph import tensors
from gradscope.capture.step.modules import keyword_arguments
from gradscope.capture.training.event_log import Sites
from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.guard import Guard
from gradscope.capture.training.history.references import name_of
from gradscope.capture.training.locations import Locations, receiver, stem
from gradscope.capture.training.models.model_records import (
    FROZEN,
    HELD,
    TRAINABLE,
    EvalModes,
    Forwards,
    Mode,
    ModelRecords,
    Root,
    depends_on_mode,
    models_of,
)
from gradscope.capture.training.models.running_modules import (
    calling_frame,
    outer_module,
    wrapped,
)
from gradscope.target import members
from gradscope.target.members import plain

_ALL_SEEN, _ALL_SEEN_EVERY = 10, 20
"""All calls are observed before this many first backwards, and before every Nth later; otherwise
only the first one."""

_MOST_SEARCHES = 5
"""Maximum number of searches through all Python objects for the modules of parameters. Each takes a
tenth of a second."""

_MOST_BARE = 8
"""Maximum number of modules without parameters that count as models, if a script has no others."""

_MOST_SOUGHT = 5
"""Maximum number of backward passes for which the calls of a model's parts are sought, as in the
`training_step` of Lightning, which does not call the model itself."""


class Models:
    """The models that the script called, their names, and their modes."""

    def __init__(
        self,
        guard: Guard,
        gradient_state: GradientState,
        locations: Locations,
        sites: Sites,
        model_got: Callable[[Tensor], None],
    ) -> None:
        self._guard, self._gradient_state, self._locations = guard, gradient_state, locations
        self._model_got = model_got
        self.records = ModelRecords(gradient_state, sites)
        self.eval_modes = EvalModes(guard, locations)
        self._known: dict[int, ref[nn.Module]] = {}
        """By `id`: every module that is a model or part of one."""
        self._roots: dict[int, Root] = {}
        self._parts: dict[int, Root] = {}
        """By `id`: parts of models that the script calls by themselves."""
        self._seeks_parts, self._sought = False, 0
        self._bare: dict[int, ref[nn.Module]] = {}
        """By `id`: modules without parameters outside any model: losses, transforms."""
        self._first_bare: list[tuple[ref[nn.Module], str]] = []
        """The first of them with their names, as long as there are no models."""
        self._top = TRAINABLE
        """Highest rank of any model."""
        self._handle: RemovableHandle | None = None
        self._is_over = False
        self._searches = 0
        self._passes = 0
        """Number of backwards."""
        self._forwards = Forwards()
        self._had_forward = False
        """Whether the last backward that was observed had a forward."""
        self.in_threads = False
        """Whether modules ran in several threads. Each thread numbers its nodes separately."""
        self._thread: int | None = None

    def start(self) -> None:
        """Start observing calls."""
        self._is_over = False
        self.resume()

    def stop(self) -> None:
        """Stop observing calls."""
        self._is_over = True
        self.pause()

    def pause(self) -> None:
        """Stop observing until the next backward: each module call costs a microsecond."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def resume(self) -> None:
        """Resume observing calls."""
        if self._handle is None and not self._is_over:
            # A global hook, because a hook on a module would be copied and pickled with it, and the
            # module is not known before its first call.
            self._handle = register_module_forward_pre_hook(self._enter)

    def pause_for_step(self) -> None:
        """Stop observing in a step that is only compared with an earlier one."""
        self.pause()
        self._forwards.are_unobserved = self._had_forward

    def resume_for_step(self) -> None:
        """Resume observing at the start of a step that is recorded in full."""
        self._forwards.are_unobserved = False
        self.resume()

    def take_forwards(self) -> Forwards:
        """Return the calls since the last backward, for the one that uses them."""
        forwards, self._forwards = self._forwards, Forwards()
        self._passes += 1
        self._had_forward = forwards.rows is not None or forwards.are_unobserved
        self._seeks_parts = forwards.rows is None and self._sought < _MOST_SOUGHT
        self._sought += self._seeks_parts
        self.resume()
        return forwards

    def see_compiled(self, compiled: object, frame: FrameType) -> None:
        """Add a model that is compiled."""
        module = getattr(compiled, "__self__", compiled)
        if isinstance(module, nn.Module) and id(module) not in self._known:
            call = self._locations.of(frame).call()
            # `torch.compile(model)` has it as an argument, `model.compile()` before the dot.
            name = stem(call.args[0]) if call and call.args else receiver(call)
            self._add_root(module, name or type(module).__name__)

    def add(self, module: nn.Module, name: str | None) -> None:
        """Add a model before its first call, named by the script or by its class."""
        self._add_root(module, name or type(plain(module)).__name__)
        self._seeks_parts = True

    @property
    def described(self) -> str:
        """Class names of the models."""
        modules = (root.module() for root in self._roots.values())
        return ", ".join(
            dict.fromkeys(type(plain(one)).__name__ for one in modules if one is not None)
        )

    @property
    def modules(self) -> list[nn.Module]:
        """All modules of the models."""
        return [module for one in list(self._known.values()) if (module := one()) is not None]

    @untraced
    def _enter(self, module: nn.Module, args: tuple[object, ...]) -> None:
        if is_traced():
            return
        key = id(module)
        if key in self._bare:
            return
        # The cheapest test first: it runs at each call of each module.
        is_part = key in self._known and key not in self._roots
        if is_part and not self._seeks_parts and key not in self._parts:
            return
        self._guard.glance(self._enter_root, module, args, sys._getframe(1))

    def _enter_root(self, module: nn.Module, args: tuple[object, ...], frame: FrameType) -> None:
        self._note_thread()
        root = self._roots.get(id(module))
        if root is None and id(module) in self._known:
            self._enter_part(module, args, frame)
            return
        if root is None:
            if _is_bare(module):
                self._add_bare(module, frame)
                return
            outer = self._outer_model(frame)
            if outer is not None and self._is_part_of(module, outer):
                return
            root = self._add_root(module, self._name(module, frame))
            if outer is not None:
                del self._roots[id(module)]
                return
        self._seeks_parts = False
        # Calls without gradients, as in an evaluation, lead to no backward.
        if torch.is_grad_enabled():
            self._note_call(root, module, args or keyword_arguments(frame), frame)

    def _enter_part(self, module: nn.Module, args: tuple[object, ...], frame: FrameType) -> None:
        """Record a call of a part of a model as one of the model, unless the model makes it."""
        if outer_module(frame, self._bare) is not None or not torch.is_grad_enabled():
            return
        root = self._parts.get(id(module)) or next(
            filter(partial(_holds, module), list(self._roots.values())), None
        )
        whole = None if root is None else root.module()
        if root is not None and whole is not None:
            self._parts[id(module)] = root
            self._note_call(root, whole, args or keyword_arguments(frame), frame)

    def _add_bare(self, module: nn.Module, frame: FrameType) -> None:
        self._bare[id(module)] = ref(module, _Forget(id(module), self._bare))
        is_apart = not self._roots and len(self._first_bare) < _MOST_BARE
        if is_apart and outer_module(frame) is None:
            self._first_bare.append((ref(module), self._name(module, frame)))

    def _outer_model(self, frame: FrameType) -> nn.Module | None:
        """Return the outermost model whose forward is running."""
        outer = outer_module(frame)
        if outer is None or id(outer) not in self._bare:
            return outer
        if _is_bare(outer):
            return outer_module(frame, self._bare)
        del self._bare[id(outer)]  # it has made its layers since
        callers = self._locations.users(frame)[::-1]  # inside the model, its name is only `self`
        name = name_of(outer, callers)
        self._add_root(outer, name or type(outer).__name__)
        return outer

    def _note_thread(self) -> None:
        thread = threading.get_ident()
        self._thread = self._thread or thread
        self.in_threads |= thread != self._thread

    def _is_part_of(self, module: nn.Module, outer: nn.Module) -> bool:
        """Add modules that a model got since; return whether this is one of them."""
        if id(outer) in self._roots:
            self._add_modules(self._roots[id(outer)], outer)
        return id(module) in self._known

    def _add_root(self, module: nn.Module, name: str) -> Root:
        root = Root(ref(module), name)
        self.records.define(module)
        self._add_modules(root, module)
        root.name = self._unique(name)  # a part of it may have had this name
        self._roots[id(module)] = root
        return root

    def _add_modules(self, root: Root, module: nn.Module) -> None:
        root.mode_dependent, root.is_recorded = [], False
        for one in members.modules(module):
            # Weak references: a module that the script drops must be freed as without gradscope.
            self._known[id(one)] = ref(one, _Forget(id(one), self._known, self._roots, self._parts))
            # A module that was called by itself may turn out to be a part of a model.
            if one is not module and self._roots.pop(id(one), None) is not None:
                self._parts[id(one)] = root
            if depends_on_mode(one):
                root.mode_dependent.append(ref(one))
        for parameter in parameters_of(module):
            self._gradient_state.add(parameter)

    def _name(self, module: nn.Module, frame: FrameType) -> str:
        location = self._locations.of(frame)
        call = location.call()
        calling = calling_frame(frame)
        name = None
        if call is not None and calling is not None and calling.f_code is location.code:
            name = stem(call.func)
        if name is None or location.is_of_trainer:
            # A trainer calls it, or a function of torch, as in `functional_call(net, weights, x)`.
            users = self._locations.users(frame)
            # A trainer's own variable for a wrapper that it made tells nothing.
            *_, inner = every = list(wrapped(module))
            held = filter(None, (name_of(one, users) for one in every))
            name, module = next(held, name if inner is plain(module) else None), inner
        return name or type(plain(module)).__name__

    def _unique(self, name: str) -> str:
        taken = {root.name for root in self._roots.values()}
        number, unique = 1, name
        while unique in taken:
            number += 1
            unique = f"{name}#{number}"
        return unique

    def _note_call(self, root: Root, module: nn.Module, inputs: object, frame: FrameType) -> None:
        forwards = self._forwards
        rank = self._rank(root, module)
        # A script calls teachers and metrics too: the batch of the model that it trains is shown.
        if (rank, module.training) > forwards.preference:
            first = next((one for one in tensors(inputs) if one.dim() and _has_sizes(one)), None)
            if first is not None:
                forwards.rows, forwards.preference = first.shape[0], (rank, module.training)
                forwards.batch = f"{shape_of(first).dtype}{list(first.shape)}"
            if first is not None and module.training and rank >= self._top:
                self._model_got(first)
        *_, inner = wrapped(module)  # what a wrapper holds computes: its mode counts
        is_trained = self.eval_modes.is_in_train_mode(inner)
        forwards.modes[root.name] = None if is_trained else self._mode(root, inner, frame)
        is_model = module.training and rank >= self._top
        if is_model and self._passes >= _ALL_SEEN and self._passes % _ALL_SEEN_EVERY:
            self.pause()

    def _rank(self, root: Root, module: nn.Module) -> int:
        """Return a model's rank: how clearly it is being trained."""
        passes = self._passes
        is_due = passes < _ALL_SEEN or passes % _ALL_SEEN_EVERY == 0
        if root.ranked is None or (is_due and root.ranked != passes):
            root.ranked = passes
            trainable = [one for one in members.parameters(module) if one.requires_grad]
            found = map(self._gradient_state.entry, trainable)
            is_held = any(entry is not None and entry.in_optimizer for entry in found)
            root.rank = HELD if is_held else TRAINABLE if trainable else FROZEN
            self._top = max(self._top, root.rank)
        return root.rank

    def _mode(self, root: Root, module: nn.Module, frame: FrameType) -> Mode:
        in_eval = [
            one for r in root.mode_dependent if (one := r()) is not None and not one.training
        ]
        dropout = sum(not isinstance(one, _BatchNorm) for one in in_eval)
        location = self.eval_modes.line_of(module) or self._locations.of(frame)
        return Mode(root.name, location, dropout, len(in_eval) - dropout)

    def roots(self) -> list[tuple[str, nn.Module]]:
        """Return the living models with their names."""
        found = [(root.name, root.module()) for root in list(self._roots.values())]
        return [(name, module) for name, module in found if module is not None]

    def take_in(self, owner_name: Callable[[Tensor], str | None]) -> None:
        """Assign names and indices in the recording to new modules and parameters.

        Args:
            owner_name: Returns the name of the model of a parameter, if only its optimizer is
                known.
        """
        has_new = any(entry.index is None for entry in self._gradient_state.entries)
        if has_new:
            self._find_owners(owner_name)
        if not self._roots:
            self._take_bare()
        for root in list(self._roots.values()):
            module = root.module()
            if module is not None and (has_new or not root.is_recorded):
                root.is_recorded = self.records.add(root.name, module)
        self.records.add_loose()

    def _take_bare(self) -> None:
        """Treat modules without parameters as models, because there are no others."""
        found, self._first_bare = self._first_bare, []
        for reference, name in found:
            module = reference()
            if module is not None:
                self._add_root(module, name)

    def _find_owners(self, owner_name: Callable[[Tensor], str | None]) -> None:
        """Find the models of new parameters that no call led to, as with `model.forward(x)`."""
        new = [entry.parameter() for entry in self._gradient_state.entries if entry.index is None]
        roots = [one for root in self._roots.values() if (one := root.module()) is not None]
        owned = {id(parameter) for root in roots for parameter in parameters_of(root)}
        orphans = {id(one): one for one in new if one is not None and id(one) not in owned}
        if not orphans or self._searches == _MOST_SEARCHES:
            return
        self._searches += 1
        users = self._locations.users(sys._getframe(1))
        for model, orphan in models_of(orphans):
            if id(model) not in self._known:
                name = name_of(model, users) or owner_name(orphan) or type(plain(model)).__name__
                self._add_root(model, name)


class _Forget:
    """Removes a module that was freed."""

    def __init__(self, key: int, *tables: MutableMapping[int, Any]) -> None:
        self._key, self._tables = key, tables

    def __call__(self, _: object) -> None:
        for table in self._tables:
            table.pop(self._key, None)


def _holds(module: nn.Module, root: Root) -> bool:
    whole = root.module()
    return whole is not None and any(one is module for one in members.modules(whole))


def _is_bare(module: nn.Module) -> bool:
    return next(members.parameters(module), None) is None


def _has_sizes(tensor: Tensor) -> bool:
    return not tensor.is_nested or tensor.layout is not torch.strided
