"""To which parameters gradients come, and which cuts keep them from the others."""

from dataclasses import dataclass
from functools import cached_property

from gradscope.recording.records import CutRecord, NodeRecord, Recording, Site
from gradscope.rules.case import Case
from gradscope.rules.subtrees import Part, Subtrees

HEAD_SHARE = 0.1
"""What learns is only a head if it holds less than this share of the trainable elements."""

_SAMPLING = frozenset(
    {
        "_sample_dirichlet",
        "_standard_gamma",
        "bernoulli",
        "binomial",
        "multinomial",
        "normal",
        "poisson",
    }
)

_COMBINATIONS = frozenset({"AddBackward0", "CatBackward0", "StackBackward0"})
"""Operations into which a prediction goes rather than a target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A line at which the gradient of parameters ends that nothing else explains."""

    cuts: tuple[CutRecord, ...]
    parameters: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def cut(self) -> CutRecord:
        """The first call of the line."""
        return self.cuts[0]

    @property
    def joins(self) -> frozenset[int]:
        """The nodes into which something came from behind it."""
        return frozenset(node for cut in self.cuts for node in cut.joins)

    @property
    def is_whole(self) -> bool:
        """Whether it keeps the gradient from whole modules."""
        return all(part.module is not None for part in self.parts)


@dataclass(frozen=True)
class Reach:
    """To which parameters gradients come."""

    case: Case

    @property
    def recording(self) -> Recording:
        """What is judged."""
        return self.case.recording

    @cached_property
    def subtrees(self) -> Subtrees:
        """The modules of the model."""
        return Subtrees(self.recording)

    @cached_property
    def learning(self) -> frozenset[int]:
        """The parameters that got a gradient in some step, be it zero."""
        stats = self.recording.parameter_stats
        return frozenset(stat.parameter for stat in stats if stat.reach in ("gradient", "zero"))

    @cached_property
    def lost(self) -> frozenset[int]:
        """The parameters that require grad and got none in any step."""
        trainable = {p.index for p in self.recording.parameters if p.requires_grad}
        seen = {stat.parameter for stat in self.recording.parameter_stats}
        return frozenset((trainable & seen) - self.learning)

    @cached_property
    def stops(self) -> tuple[Stop, ...]:
        """The lines that keep gradients from the lost parameters, each explained once."""
        cuts: dict[object, list[CutRecord]] = {}
        parameters: dict[object, list[int]] = {}
        leading = [cut for cut in self.recording.cuts if self._leads_on(cut)]
        for parameter in sorted(self.lost):
            behind = [cut for cut in leading if parameter in cut.parameters]
            if not behind:
                continue
            best = max(behind, key=lambda cut: (bool(cut.joins), cut.kind != "read"))
            parameters.setdefault(self._place(best), []).append(parameter)
        for cut in leading:
            cuts.setdefault(self._place(cut), []).append(cut)
        return tuple(
            Stop(
                cuts=tuple(cuts[place]),
                parameters=tuple(found),
                parts=self.subtrees.parts(found),
            )
            for place, found in parameters.items()
        )

    def _place(self, cut: CutRecord) -> object:
        """Return what cuts of one cause have in common."""
        site = self.case.site(cut.site)
        if site is None:
            return cut.operation
        if cut.kind == "no-grad" and not cut.whole_call and not is_sampling(cut, site):
            return (site.file, site.function)  # one block of lines without gradients
        return (site.file, site.line)

    def _leads_on(self, cut: CutRecord) -> bool:
        """Return whether something came from behind a cut to the loss, as far as one can tell."""
        if cut.joins:
            return True
        if cut.operation == "__bool__":  # only decides which way to go
            return False
        return not self.learning or (cut.taken_out and self.is_in_model(cut.call))

    def is_in_model(self, call: int | None) -> bool:
        """Return whether a module call is one of the model's."""
        if call is None:
            return False
        return self.recording.modules[self.recording.calls[call].module].in_model

    def is_target(self, stop: Stop) -> bool:
        """Return whether what was cut off is only used by the loss, as a target or a weight."""
        joins = [self.recording.nodes[node] for node in stop.joins]
        return bool(joins) and all(
            self.is_behind_parameters(node)
            and node.operation not in _COMBINATIONS
            and (not self.is_in_model(node.module_call) or self._loss_is_in_model)
            for node in joins
        )

    def is_behind_parameters(self, node: NodeRecord) -> bool:
        """Return whether no operation from this one on to the loss takes a parameter."""
        waiting, seen = [node.index], {node.index}
        while waiting:
            place = waiting.pop()
            if any(self._is_parameter(ref.node) for ref in self.case.successors.get(place, ())):
                return False
            fresh = [user for user in self.case.users.get(place, ()) if user not in seen]
            seen.update(fresh)
            waiting += fresh
        return True

    def _is_parameter(self, place: int) -> bool:
        """Return whether a node is a parameter or a view of one."""
        node = self.recording.nodes[place]
        while node.kind == "view" and self.case.successors.get(node.index):
            node = self.recording.nodes[self.case.successors[node.index][0].node]
        return node.kind == "parameter"

    @cached_property
    def _loss_is_in_model(self) -> bool:
        nodes = self.case.first.nodes
        return bool(nodes) and self.is_in_model(nodes[0].module_call)

    def learns_only_head(self, stop: Stop) -> bool:
        """Return whether all that learns is one layer, or a small part, after the cut."""
        joins = [self.recording.nodes[node] for node in stop.joins]
        if not joins or all(self.is_behind_parameters(node) for node in joins):
            return False
        owners = {self.recording.parameters[index].module for index in self.learning}
        elements = [sum(self.recording.parameters[p].numel for p in s) for s in self._sides]
        return len(owners) == 1 or elements[0] < HEAD_SHARE * sum(elements)

    @property
    def _sides(self) -> tuple[frozenset[int], frozenset[int]]:
        return self.learning, self.lost

    def is_held(self, stop: Stop) -> bool | None:
        """Return whether the user's optimizer holds what was cut off, None without an optimizer."""
        if self.recording.target.optimizer is None:
            return None
        groups = (self.recording.parameters[index].optimizer_group for index in stop.parameters)
        return any(group is not None for group in groups)

    def is_in_eval_mode(self, stop: Stop) -> bool:
        """Return whether what was cut off is in eval mode while the model trains."""
        owners = {self.recording.parameters[index].module for index in stop.parameters}
        modes = [self.recording.modules[owner].training for owner in owners]
        return self.recording.target.mode == "train" and not any(modes)

    def is_twin(self, stop: Stop) -> bool:
        """Return whether modules built alike learn in its place."""
        return all(self.subtrees.has_twin(part, self.learning) for part in stop.parts)


def is_sampling(cut: CutRecord, site: Site | None) -> bool:
    """Return whether a cut is a draw from a distribution."""
    if cut.operation in _SAMPLING:
        return True
    # Many distributions draw by way of `rsample` under no_grad.
    return cut.kind == "no-grad" and site is not None and ".sample(" in site.source
