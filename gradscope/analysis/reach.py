"""What gradients reach, which parts of the model they do not, and where they stop."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from gradscope.analysis.model_parts import Part, Subtrees
from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.evidence.failures import WithheldRecord
from gradscope.recording.evidence.parameters import InfluenceRecord
from gradscope.recording.records import NodeRecord, Recording, Site

HEAD_SHARE = 0.1
"""Learning parameters count as a head if they hold less than this share of the trainable elements.
"""

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

_COPIES = frozenset({"Parameter", "new_tensor", "tensor"})
_WRITES = frozenset({"copy_", "data assignment", "write into a detached tensor"})
_COMBINATIONS = frozenset({"AddBackward0", "CatBackward0", "StackBackward0"})
"""Operations that combine predictions, rather than compare one with a target."""

_ORDERS = frozenset({"argsort", "sort", "topk"})
"""Functions whose indices are the order of numbers."""

_NEW_LEAF = "requires_grad=True"
"""Argument by which a line makes a tensor that gets a gradient, of numbers that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A line at which the gradient of parameters ends that nothing else explains."""

    cut: CutRecord
    """First call of the line."""
    cuts: tuple[CutRecord, ...]
    """All cuts before the parameters, on this line and on others."""
    parameters: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def joins(self) -> frozenset[int]:
        """Nodes with an input from behind the cuts."""
        return frozenset(node for cut in self.cuts for node in cut.joins)

    @property
    def bypassed(self) -> frozenset[int]:
        """Nodes past which something else hands the gradient on."""
        return frozenset(node for cut in self.cuts if cut.straight_through for node in cut.joins)

    @property
    def runs_without_grad(self) -> bool:
        """Whether the parameters themselves were used under no_grad, not only their results."""
        without_grad = self.cut.kind == "no-grad" and not self.is_checkpoint
        return without_grad and (self.cut.whole_call or self.cut.last is None)

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a reentrant checkpoint, none of whose inputs needs a gradient."""
        return self.cut.kind == "no-grad" and self.cut.operation == "checkpoint"

    @property
    def is_copy(self) -> bool:
        """Whether a tensor was made anew of another's numbers, as by `torch.tensor`."""
        return self.cut.operation in _COPIES

    @property
    def is_written(self) -> bool:
        """Whether numbers are written into a tensor that keeps its own history."""
        return self.cut.operation in _WRITES

    @property
    def leaves_torch(self) -> bool:
        """Whether a detached tensor was turned into an array or numbers, and was not used else."""
        return self.cut.taken_out and self.cut.kind == "detach" and not self.cut.joins

    @property
    def is_whole(self) -> bool:
        """Whether it keeps the gradient from whole modules."""
        return all(part.module is not None for part in self.parts)


@dataclass(frozen=True)
class Reach:
    """The parameters that gradients reach."""

    indexed: RecordingIndex

    @property
    def recording(self) -> Recording:
        """Judged recording."""
        return self.indexed.recording

    @cached_property
    def subtrees(self) -> Subtrees:
        """The modules of the model."""
        return Subtrees(self.recording)

    @cached_property
    def learning(self) -> frozenset[int]:
        """The parameters that got a gradient in some step, be it zero, or under another draw."""
        stats = self.recording.parameter_stats
        got = {stat.parameter for stat in stats if stat.reach in ("gradient", "zero")}
        elsewhere = frozenset[int]() if self.indexed.run is None else self.indexed.run.learning
        return self.indexed.redrawn | got | elsewhere

    @cached_property
    def lost(self) -> frozenset[int]:
        """The parameters that require grad and got none in any step.

        In a training run only those that the steps after this backward are for.
        """
        trainable = {p.index for p in self.recording.parameters if p.requires_grad}
        # A parameter that no step measured is unknown, not lost.
        seen = {stat.parameter for stat in self.recording.parameter_stats}
        if self.indexed.run is not None:
            trainable &= self.indexed.run.stepped
        return frozenset((trainable & seen) - self.learning)

    @cached_property
    def _cut_late(self) -> frozenset[int]:
        """The parameters that learned earlier in the run, and that a cut keeps from the loss.

        Without a cut, it may be that they are not needed any more.
        """
        run = self.indexed.run
        if run is None or not run.ceased:
            return frozenset()
        records = self.recording.parameters
        joining = (cut.parameters for cut in self.recording.cuts if cut.joins)
        behind = {index for parameters in joining for index in parameters}
        return frozenset(p for p in run.ceased & run.stepped & behind if records[p].requires_grad)

    @cached_property
    def stops(self) -> tuple[Stop, ...]:
        """The lines that keep gradients from the lost parameters, each explained once."""
        found: dict[object, list[tuple[int, CutRecord]]] = {}
        for parameter in sorted(self.lost | self._cut_late):
            behind = self._leading(parameter)
            if behind:
                best = max(behind, key=self._likeliness)
                found.setdefault(best.site, []).append((parameter, best))
        stops = [self._stop([p for p, _ in group], group[0][1]) for group in found.values()]
        return tuple(self._without_parts_of_one(stops))

    def _likeliness(self, cut: CutRecord) -> tuple[bool, ...]:
        """Return how likely one of several cuts is the one that stops a gradient.

        What copies a parameter itself outside of any module, as `copy.deepcopy` does, cuts no path.
        A draw of an action comes before its log-probability, by which policies learn. A line that
        puts numbers into a new tensor with `requires_grad=True` makes what backward starts at.
        The order of numbers mostly chooses among others that pass the gradient on.
        """
        is_of_parameter = cut.kind != "no-grad" and cut.last is None and cut.call is None
        is_draw = is_sampling(cut, self.indexed.site(cut.site))
        is_read, is_order = cut.kind == "read", cut.operation in _ORDERS
        others = not is_read, not is_of_parameter, not is_draw, not is_order
        # Tuples compare from the left: what makes backward's start outweighs everything else.
        return self._makes_root(cut), bool(cut.joins), *others

    def _makes_root(self, cut: CutRecord) -> bool:
        """Return whether the line of a cut makes the tensor from which backward starts."""
        site = self.indexed.site(cut.site)
        is_of_numbers = cut.kind != "non-differentiable" and not self.learning
        return is_of_numbers and site is not None and _NEW_LEAF in site.source

    def _stop(self, parameters: list[int], cut: CutRecord) -> Stop:
        cuts = (one for parameter in parameters for one in self._leading(parameter))
        return Stop(
            cut=cut,
            cuts=tuple(dict.fromkeys(cuts)),
            parameters=tuple(sorted(parameters)),
            parts=self.subtrees.parts(parameters),
        )

    def _without_parts_of_one(self, stops: list[Stop]) -> list[Stop]:
        """Return the stops, as one where lines of one block without gradients share a module."""
        functions: dict[object, list[Stop]] = {}
        for stop in stops:
            site = self.indexed.site(stop.cut.site)
            without_grad = site is not None and stop.cut.kind == "no-grad"
            # A stop that must not be joined gets a key of its own.
            key = (site.file, site.function) if site and without_grad else id(stop)
            functions.setdefault(key, []).append(stop)
        merged = []
        for group in functions.values():
            together = self._stop([p for stop in group for p in stop.parameters], group[0].cut)
            is_one = len(together.parts) == 1 or self._is_of_one_block(together, group)
            merged += [together] if is_one else group
        return merged

    def _is_of_one_block(self, together: Stop, group: list[Stop]) -> bool:
        """Return whether stops are layers without parts, of one module and in one block."""
        modules = self.recording.modules
        inner = {module.parent for module in modules}
        of = [modules[part.module] for part in together.parts if part.module is not None]
        is_whole = len(of) == len(together.parts) and not any(one.index in inner for one in of)
        blocks = {stop.cut.disabled for stop in group}
        return is_whole and len(blocks) == 1 == len({one.parent for one in of})

    @cached_property
    def withheld(self) -> dict[int, tuple[WithheldRecord, ...]]:
        """The lost parameters to which the backward of custom functions returns no gradient."""
        found: dict[int, tuple[WithheldRecord, ...]] = {}
        for record in self.recording.evidence_of(WithheldRecord):
            if record.parameter in self.lost:
                found[record.parameter] = (*found.get(record.parameter, ()), record)
        return found

    @cached_property
    def _influence(self) -> dict[int, bool]:
        """By parameter: whether the loss changed with it, if that was tested."""
        records = self.recording.evidence_of(InfluenceRecord)
        return {
            position: record.changes_loss for record in records for position in record.parameters
        }

    def _leading(self, parameter: int) -> list[CutRecord]:
        """Return the cuts behind which a parameter is and whose result reaches the loss."""
        if parameter in self.withheld:  # a custom function's forward runs without gradients
            return []
        behind = [cut for cut in self.recording.cuts if parameter in cut.parameters]
        return [cut for cut in behind if cut.joins or self._makes_root(cut)] or [
            cut for cut in behind if self._may_lead(cut, self._influence.get(parameter))
        ]

    def _may_lead(self, cut: CutRecord, influence: bool | None) -> bool:
        if not self.learning:
            return True
        if influence is None:  # not known: what is taken out in a forward is mostly for use there
            is_used = self.is_in_model(cut.call) or cut.comes_back
            return cut.taken_out and cut.operation != "__bool__" and is_used
        return influence

    def is_certain(self, stop: Stop) -> bool:
        """Return whether the detached value certainly reaches the loss."""
        changes = (self._influence.get(parameter) for parameter in stop.parameters)
        return bool(stop.joins) or any(changes)

    def is_in_model(self, call: int | None) -> bool:
        """Return whether a module call is one of the model's."""
        if call is None:
            return False
        return self.recording.modules[self.recording.calls[call].module].in_model

    def is_target(self, stop: Stop) -> bool:
        """Return whether only the loss uses the detached value, as a target or a weight."""
        joins = [self.recording.nodes[node] for node in stop.joins - stop.bypassed]
        return bool(stop.joins) and all(
            self.is_behind_parameters(node)
            and node.operation not in _COMBINATIONS
            and (not self.is_in_model(node.module_call) or self._is_summed_up(node))
            for node in joins
        )

    def is_used_late(self, stop: Stop) -> bool:
        """Return whether no layer that learns uses the detached value."""
        nodes = self.recording.nodes
        return all(self.is_behind_parameters(nodes[node]) for node in stop.joins)

    def is_behind_parameters(self, node: NodeRecord) -> bool:
        """Return whether no operation from this one on to the loss uses a parameter."""
        return not any(
            self.is_parameter(ref.node)
            for user in self._towards_loss(node)
            for ref in self.indexed.successors.get(user.index, ())
        )

    def _towards_loss(self, node: NodeRecord) -> Iterator[NodeRecord]:
        """Yield a node and all nodes that use its result."""
        waiting, seen = [node.index], {node.index}
        while waiting:
            position = waiting.pop()
            yield self.recording.nodes[position]
            fresh = [user for user in self.indexed.users.get(position, ()) if user not in seen]
            seen.update(fresh)
            # A set of what was seen keeps shared subgraphs from being walked once per path.
            waiting += fresh

    def is_parameter(self, position: int) -> bool:
        """Return whether a node is a parameter or a view of one."""
        return self.indexed.behind_views(position).kind == "parameter"

    def _is_summed_up(self, node: NodeRecord) -> bool:
        """Return whether the model reduces an operation's result to a number, a loss of its own."""
        return any(
            user.outputs[0] is not None
            and not user.outputs[0].dims
            and self.is_in_model(user.module_call)
            for user in self._towards_loss(node)
        )

    def learns_only_head(self, stop: Stop) -> bool:
        """Return whether all that learns is one layer, or a small part, after the cut."""
        if stop.joins and self.is_used_late(stop):
            return False
        learns = [self.recording.parameters[index] for index in self.learning]
        if self.is_held(stop.parameters) and not any(one.shape.dims for one in learns):
            return False  # numbers such as a temperature are no layer
        owners = {one.module for one in learns}
        learning, lost = self._elements(self.learning), self._elements(self.lost)
        return len(owners) == 1 or learning < HEAD_SHARE * (learning + lost)

    def _elements(self, parameters: frozenset[int]) -> int:
        return sum(self.recording.parameters[index].numel for index in parameters)

    def is_held(self, parameters: Iterable[int]) -> bool | None:
        """Return whether the user's optimizer holds any of these, None without an optimizer."""
        if self.indexed.run is not None:
            return not self.indexed.run.held.isdisjoint(parameters)
        if self.recording.target.optimizer is None:
            return None
        groups = (self.recording.parameters[index].optimizer_group for index in parameters)
        return any(group is not None for group in groups)

    def is_in_eval_mode(self, stop: Stop) -> bool:
        """Return whether the detached part is in eval mode while the model trains."""
        owners = {self.recording.parameters[index].module for index in stop.parameters}
        modes = [self.recording.modules[owner].training for owner in owners]
        return self.recording.target.mode == "train" and not any(modes)

    def has_ceased(self, stop: Stop) -> bool:
        """Return whether the detached part learned earlier in the run."""
        run = self.indexed.run
        return run is not None and not run.ceased.isdisjoint(stop.parameters)

    def draws(self, stop: Stop) -> bool:
        """Return whether the gradient ends at a draw from a distribution."""
        here = (cut for cut in stop.cuts if cut.site == stop.cut.site)
        return any(is_sampling(cut, self.indexed.site(cut.site)) for cut in here)

    def is_twin(self, stop: Stop) -> bool:
        """Return whether as many equal modules learn instead of it."""
        found = [frozenset(self.subtrees.twins(part, self.learning)) for part in stop.parts]
        # Two of three equal layers are no copies of the third.
        return all(0 < found.count(twins) <= len(twins) for twins in found)


def is_sampling(cut: CutRecord, site: Site | None) -> bool:
    """Return whether a cut is a draw from a distribution."""
    if cut.operation in _SAMPLING:
        return True
    # Many distributions draw by way of `rsample` under no_grad.
    return cut.kind == "no-grad" and site is not None and ".sample(" in site.source
