"""Records the contents of the optimizers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradscope.capture.naming import optimizer_family, shape_of
from gradscope.capture.reading import whole
from gradscope.capture.source.lines import Line
from gradscope.probes.context import ProbeContext
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.parameters import CallerRecord
from gradscope.recording.evidence.training import (
    GroupRecord,
    OptimizerRecord,
    StaleTensor,
)


def probe_optimizers(context: ProbeContext) -> str | None:
    """Record every known optimizer."""
    reading = _OptimizerReading(context)
    for index, optimizer in enumerate(context.optimizers):
        context.assembler.note(reading.record(index, optimizer))
    for module, line in reading.callers():
        site = context.assembler.site_of(line)
        if site is not None:
            context.assembler.note(CallerRecord(module=module, site=site))
    for write in UserCodeSearch(context).misplaced_writes() if context.of_run else ():
        context.assembler.note(write)
    return None


def with_numbers_of(record: OptimizerRecord, optimizer: torch.optim.Optimizer) -> OptimizerRecord:
    """Return a record with an optimizer's current learning rates and other settings.

    It is the same record if nothing changed.
    """
    groups = tuple(
        _with_numbers(group, now)
        for group, now in zip(record.groups, optimizer.param_groups, strict=True)
    )
    return record if groups == record.groups else replace(record, groups=groups)


def _with_numbers(record: GroupRecord, group: dict[str, object]) -> GroupRecord:
    return replace(
        record,
        learning_rate=_number(group, "lr"),
        initial_learning_rate=_number(group, "initial_lr"),
        epsilon=_number(group, "eps"),
        momentum=_number(group, "momentum"),
        weight_decay=_number(group, "weight_decay"),
        betas=_betas(group),
    )


class _OptimizerReading:
    """State of the model, to compare optimizers with."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._parameters = context.named.parameters
        self._positions = {
            id(parameter): position for position, parameter in enumerate(self._parameters)
        }
        self._used = {id(leaf) for leaf in context.capture.other_leaves()}
        self._paths = {
            id(module): record.path
            for module, record in zip(
                context.named.modules, context.named.module_records, strict=True
            )
        }

    def record(self, index: int, optimizer: torch.optim.Optimizer) -> OptimizerRecord:
        made = self._context.definitions.optimizers.get(optimizer)
        groups = tuple(self._group(group) for group in optimizer.param_groups)
        in_use = self._context.of_run and any(group.parameters for group in groups)
        return OptimizerRecord(
            index=index,
            class_name=type(optimizer).__name__,
            family=optimizer_family(optimizer),
            is_torchs=type(optimizer).__module__.startswith("torch.optim"),
            is_targets=in_use or optimizer is self._context.target.optimizer,
            site=None if made is None else self._context.assembler.site_of(made.line),
            groups=groups,
            later=() if made is None else tuple(self._made_after(made.order)),
            stale=tuple(self._stale(optimizer)),
            given=None if made is None else self._context.assembler.site_of(made.given),
            maximises=any(group.get("maximize") for group in optimizer.param_groups),
        )

    def _group(self, group: dict[str, object]) -> GroupRecord:
        counts = Counter(
            self._positions[id(tensor)]
            for tensor in _listed(group)
            if id(tensor) in self._positions
        )
        record = GroupRecord(
            parameters=tuple(counts),
            duplicates=tuple(position for position, count in counts.items() if count > 1),
            learning_rate=None,
            initial_learning_rate=None,
            epsilon=None,
            momentum=None,
            weight_decay=None,
        )
        return _with_numbers(record, group)

    def _made_after(self, order: int) -> Iterator[int]:
        for position, parameter in enumerate(self._parameters):
            registration = self._context.definitions.registration(parameter)
            if registration is not None and registration.order > order:
                yield position

    def callers(self) -> Iterator[tuple[int, Line]]:
        """Yield the modules of parameters that were made after an optimizer, with their callers."""
        context = self._context
        orders = [
            made.order
            for made in map(context.definitions.optimizers.get, context.optimizers)
            if made
        ]
        if not orders:
            return
        records = context.named.parameter_records
        later = {records[position].module for position in self._made_after(min(orders))}
        for module in sorted(later):
            line = context.definitions.callers.get(context.named.modules[module])
            if line is not None:
                yield module, line

    def _stale(self, optimizer: torch.optim.Optimizer) -> Iterator[StaleTensor]:
        """Yield the tensors that were once in the model, as far as that is known."""
        target = self._context.target
        is_given = self._context.of_run or optimizer in (target.optimizer, target.stale_optimizer)
        held = [tensor for group in optimizer.param_groups for tensor in _listed(group)]
        successors = self._successors(held) if is_given else {}
        for position, tensor in enumerate(held):
            # By identity, because a replaced parameter may have equal values.
            if id(tensor) in self._positions or id(tensor) in self._used:
                continue
            name, line = self._former_name(tensor)
            if name is not None or position in successors:
                successor = self._named(name) if name is not None else successors[position]
                yield StaleTensor(
                    shape=shape_of(tensor),
                    name=name or self._context.named.parameter_records[successors[position]].name,
                    successor=successor,
                    replaced=line,
                )

    def _former_name(self, tensor: Tensor) -> tuple[str | None, int | None]:
        """Return a tensor's former name in the model, and the line that replaced it."""
        definitions = self._context.definitions
        replacement = definitions.replacement(tensor)
        if replacement is not None:
            path = self._path(replacement.module())
            if path is not None:
                return path + replacement.name, self._context.assembler.site_of(replacement.line)
        registration = definitions.registration(tensor)
        path = None if registration is None else self._path(registration.module())
        if registration is None or path is None:
            return None, None
        return path + registration.name, None

    def _path(self, module: object) -> str | None:
        path = self._paths.get(id(module)) if module is not None else None
        return f"{path}." if path else path

    def _named(self, name: str) -> int | None:
        records = self._context.named.parameter_records
        return next((r.index for r in records if name in (r.name, *r.aliases)), None)

    def _successors(self, held: list[Tensor]) -> dict[int, int]:
        """Return the parameter that corresponds to each held tensor outside the model.

        This is known if the optimizer holds as many tensors as the model has, and the model's own
        ones at the same positions. If it holds none of them, all shapes must match.
        """
        trainable = [position for position, p in enumerate(self._parameters) if p.requires_grad]
        # Scripts give an optimizer either all parameters or those that require grad.
        for positions in (list(range(len(self._parameters))), trainable):
            if len(positions) != len(held) or not held:
                continue
            pairs = [
                (tensor, self._parameters[p]) for tensor, p in zip(held, positions, strict=True)
            ]
            kept = [tensor is parameter for tensor, parameter in pairs]
            foreign = [pair for pair, is_kept in zip(pairs, kept, strict=True) if not is_kept]
            if all(_may_replace(old, new, exactly=not any(kept)) for old, new in foreign):
                own = enumerate(zip(positions, kept, strict=True))
                return {
                    position: parameter for position, (parameter, is_kept) in own if not is_kept
                }
        return {}


def _may_replace(old: Tensor, new: Tensor, *, exactly: bool) -> bool:
    # A head that was replaced for other classes has another shape at the same position.
    return old.shape == new.shape if exactly else old.dim() == new.dim()


def _listed(group: dict[str, object]) -> list[Tensor]:
    listed = group["params"]
    assert isinstance(listed, list)
    return listed


def _betas(group: dict[str, object]) -> tuple[float, float] | None:
    betas = group.get("betas")
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        return None
    first, second = (_number({"beta": beta}, "beta") for beta in betas)
    return None if first is None or second is None else (first, second)


def _number(group: dict[str, object], name: str) -> float | None:
    value = group.get(name)
    if isinstance(value, Tensor):
        # Capturable and fused optimizers keep the rate as a tensor.
        one = whole(value)
        return float(one) if one is not None and one.numel() == 1 else None
    return float(value) if isinstance(value, int | float) else None
