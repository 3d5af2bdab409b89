"""Where gradients become exactly zero on their way from the loss, and why."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from gradscope.frozen import dataclass
from gradscope.recording.evidence.parameters import InitialisationRecord
from gradscope.recording.records import NodeRecord, ParameterRecord, Recording, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.outputs import is_over_one_element
from gradscope.rules.helpers.recurrence import calls_from_zero
from gradscope.rules.helpers.zeros.flat_factors import flattening_activations

_MOST_STEPS_DOWN = 8
"""Maximum number of operations searched for the factors of a product."""

_FLAT = ("Mul", "Div", "LogSoftmax", "Sigmoid", "Softmax", "Tanh")
"""Prefixes of operations that pass on zeros where a factor, or their derivative, is zero."""
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_OWN_ZEROS = (
    *("Relu", "Threshold", "Clamp", "Hard", "Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign"),
    *("Heaviside", "Bernoulli", "Normal", "Poisson"),
)
"""Prefixes of operations that make zeros of a gradient by themselves, without other factors."""
_ALL_OR_NOTHING = (*_OWN_ZEROS, "Frac", "Index", "Where", "MaskedFill", "Max")
"""Prefixes of operations that pass on a gradient either unchanged or as zero."""
_VANISHING = {"float16": 1.5e-5, "bfloat16": 3e-36, "float32": 3e-36, "float64": 6e-306}
"""Gradient below which products may be zero, by type: 256 times the smallest number, or for long
types the smallest normal number. Weights below 1 and flat activations reduce a gradient further.
"""
_FILLING = frozenset({"constant_", "zeros_"})
"""Functions of `torch.nn.init` that may leave only zeros."""
_CASTS = ("ToCopyBackward0",)
_SOFTMAXES = frozenset({"LogSoftmax", "Softmax", "Softmin"})
_ROWS = frozenset({"EmbeddingBackward0", "EmbeddingBagBackward0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEnd:
    """An operation that gets a gradient and passes on zeros."""

    node: NodeRecord
    zeros: tuple[int, ...]
    """Zero parameters by which it multiplies, in order of definition."""
    parameters: tuple[int, ...]
    """Parameters whose gradient is zero because of this operation."""
    site: Site | None
    """Line that fills a parameter with zeros, if a parameter is zero; otherwise the operation's
    line.
    """
    made: Site | None
    """Line that makes the layer of that parameter, if another line fills it."""
    in_recurrent_layer: bool
    underflows: bool
    """Whether the incoming gradient is so small that its products are rounded to zero."""
    is_over_one_element: bool
    """Whether it is a softmax over a single element."""
    calls_from_zero: int = 0
    """Number of calls of a recurrent cell that all start from a hidden state of zeros."""
    cancelled: Site | None = None
    """Line whose gradient cancels that of this operation, which gets no zeros from either alone."""


@dataclass(frozen=True)
class DeadEnds:
    """The parameters whose gradient is exactly zero in every step, by what makes it so."""

    context: RuleContext

    @property
    def recording(self) -> Recording:
        """Judged recording."""
        return self.context.recording

    @cached_property
    def stuck(self) -> frozenset[int]:
        """Parameters whose gradient is zero in the first step and in every one after."""
        first = self.context.first.parameter_stats.values()
        zero = {stat.parameter for stat in first if stat.reach == "zero"}
        for probe in self.context.probes:
            zero -= {s.parameter for s in probe.parameter_stats.values() if s.reach == "gradient"}
        return frozenset(zero if self.context.run is None else zero - self.context.run.alive)

    @cached_property
    def found(self) -> tuple[DeadEnd, ...]:
        """The dead ends, one for every line that is to blame.

        Where chance left a part of what lies behind a line without a gradient, none of it is dead.
        """
        by_node: dict[int, list[int]] = {}
        for parameter in sorted(self.stuck):
            node = self._dead_end(parameter)
            if node is not None and not self._is_natural(parameter, node):
                by_node.setdefault(node.index, []).append(parameter)
        by_site: dict[object, list[DeadEnd]] = {}
        for position, parameters in by_node.items():
            cause = self._cause(position, by_node)
            end = self._end(self.recording.nodes[cause], parameters)
            by_site.setdefault(end.site or cause, []).append(end)
        found = (_together(ends) for ends in by_site.values())
        return tuple(end for end in found if self.context.redrawn.isdisjoint(end.parameters))

    def _end(self, node: NodeRecord, parameters: list[int]) -> DeadEnd:
        if node.index in self._cancelled:
            return self._end_of_two(node, self._cancelled[node.index], parameters)
        zeros = self._zero_operands(node)
        positions = [(self._filled(zero), self._made(zero)) for zero in zeros]
        known = [(filled or made, made) for filled, made in positions if filled or made]
        site, made = known[0] if known else (self._position(node), None)
        owners = [self.recording.parameters[parameter].module for parameter in parameters]
        in_recurrent = all(
            self.recording.modules[owner].class_name in _RECURRENT for owner in owners
        )
        if in_recurrent and all(
            self.recording.parameters[parameter].name.endswith("_reverse")
            for parameter in parameters
        ):
            site = self._reading(node) or site
        return DeadEnd(
            node=node,
            zeros=zeros,
            parameters=tuple(parameters),
            site=site,
            made=None if made == site else made,
            in_recurrent_layer=in_recurrent,
            underflows=not zeros and self._underflows(node),
            is_over_one_element=is_over_one_element(self.context, node),
            calls_from_zero=min(calls_from_zero(self.context, one) for one in parameters),
        )

    def _end_of_two(self, last: NodeRecord, first: NodeRecord, parameters: list[int]) -> DeadEnd:
        """Return the end of two equal terms of opposite sign, at the line of the later one."""
        while last.site == first.site:
            users = [self.context.users.get(one.index, ()) for one in (last, first)]
            if any(len(one) != 1 for one in users) or users[0] == users[1]:
                break
            last, first = (self.recording.nodes[one[0]] for one in users)
        if last.site == first.site:  # of two calls of one function: where they meet
            last = first = self._meeting(last, first) or last
        return DeadEnd(
            node=last,
            zeros=(),
            parameters=tuple(parameters),
            site=self.context.site(last.site),
            made=None,
            in_recurrent_layer=False,
            underflows=False,
            is_over_one_element=False,
            cancelled=self.context.site(first.site),
        )

    def _meeting(self, one: NodeRecord, other: NodeRecord) -> NodeRecord | None:
        """Return the first operation that the ways of two others to the loss have in common."""
        both = self._after(one) & self._after(other)
        meetings = (self.recording.nodes[position] for position in both)
        return min(meetings, key=lambda node: node.sequence or 0, default=None)

    def _after(self, node: NodeRecord) -> set[int]:
        """Return what uses an operation's result, directly or not, by index."""
        waiting, after = [node.index], set[int]()
        while waiting:
            new = set(self.context.users.get(waiting.pop(), ())) - after
            after |= new
            waiting += new
        return after

    def _position(self, node: NodeRecord) -> Site | None:
        """Return the line of an operation, or the line that made it if a module is the cause."""
        if node.module_call is None:
            return self.context.site(node.site)
        module = self.recording.modules[self.recording.calls[node.module_call].module]
        made, called = self.context.site(module.site), self.context.site(node.site)
        is_wrong = module.class_name in _SOFTMAXES and is_over_one_element(self.context, node)
        return made or called if is_wrong else called or made

    def _reading(self, node: NodeRecord) -> Site | None:
        """Return the first line that uses an output of a layer, None where several do.

        A backward direction that read one step only is wrong where its output is read.
        """
        waiting, seen, lines = [node.index], {node.index}, set[int]()
        while waiting:
            for user in self.context.users.get(waiting.pop(), ()):
                record = self.recording.nodes[user]
                if user in seen:
                    continue
                seen.add(user)
                if record.module_call == node.module_call or record.site is None:
                    waiting.append(user)
                else:
                    lines.add(record.site)
        return self.context.site(lines.pop()) if len(lines) == 1 else None

    def _made(self, parameter: int) -> Site | None:
        return self.context.site(self.recording.parameters[parameter].site)

    def _filled(self, parameter: int) -> Site | None:
        """Return the line of the user's that filled a parameter with zeros by `torch.nn.init`."""
        sites = (
            self.context.site(record.site)
            for record in self.recording.evidence_of(InitialisationRecord)
            if record.parameter == parameter and record.function in _FILLING
        )
        return next((site for site in sites if site is not None and not site.is_installed), None)

    def _underflows(self, node: NodeRecord) -> bool:
        """Return whether an operation multiplies gradients that next to nothing is smaller than."""
        if node.operation.startswith(_ALL_OR_NOTHING):
            return False
        stats = (self.context.tensor_stat(node.index, slot) for slot in range(len(node.outputs)))
        return any(
            0 < (stat.gradient.absolute_maximum or 0) < _VANISHING.get(shape.dtype, 0.0)
            for stat, shape in zip(stats, node.outputs, strict=True)
            if stat is not None and stat.gradient is not None and shape is not None
        )

    def _dead_end(self, parameter: int) -> NodeRecord | None:
        """Return the operation nearest to the loss that hands zeros on towards a parameter."""
        start = self.context.parameter_nodes.get(parameter)
        return None if start is None else self._nearest_end(start)

    @cached_property
    def _nearest(self) -> dict[int, NodeRecord | None]:
        """Dead ends found so far, by the nodes that get zeros from them.

        The parameters of a deep chain share most of their way to the loss.
        """
        return {}

    def _nearest_end(self, start: int) -> NodeRecord | None:
        waiting, opened = [start], set[int]()
        while waiting:
            position = waiting.pop()
            if position in self._nearest:
                continue
            users = self.context.users.get(position, ())
            ends = [self.recording.nodes[user] for user in users if self._is_end(user)]
            through = [user for user in users if not self._is_end(user)]
            unknown = [user for user in through if user not in self._nearest]
            # Users come first. Graphs are too long for a recursion.
            if unknown and position not in opened:
                opened.add(position)
                waiting += [position, *unknown]
                continue
            pair = self._cancelling(position) if len(users) == 2 else None
            ends += filter(None, (self._nearest.get(user) for user in through))
            nearest = min(ends, key=lambda node: node.depth, default=None)
            if pair is not None:
                nearest, self._cancelled[pair[0].index] = pair
            self._nearest[position] = nearest
        return self._nearest[start]

    @cached_property
    def _cancelled(self) -> dict[int, NodeRecord]:
        """By dead end found so far: the operation whose gradient cancels its own."""
        return {}

    def _cancelling(self, position: int) -> tuple[NodeRecord, NodeRecord] | None:
        """Return the only two users of a tensor, the later first, if their gradients cancel.

        They are the same operation and are given gradients of the same norm, of which each passes
        on a part that is not zero.
        """
        ends = list(self.context.consumers(position))
        if len(ends) != 2 or ends[0].operation != ends[1].operation:
            return None
        if ends[0].operation.startswith(_ALL_OR_NOTHING + _FLAT):
            return None
        norms = [
            stat.gradient.norm
            for end in ends
            if (stat := self.context.tensor_stat(end.index, 0)) is not None and stat.gradient
        ]
        # Equal gradients of opposite sign have one norm, up to rounding.
        if len(norms) != 2 or 0 in norms or not math.isclose(*norms, rel_tol=1e-6):
            return None
        first, last = sorted(ends, key=lambda end: end.sequence or 0)
        return last, first

    def _is_end(self, position: int) -> bool:
        node = self.recording.nodes[position]
        return node.kind != "view" and self._is_given_gradient(node)

    def _is_given_gradient(self, node: NodeRecord) -> bool:
        stats = (self.context.tensor_stat(node.index, slot) for slot in range(len(node.outputs)))
        gradients = (stat.gradient for stat in stats if stat is not None)
        return any(g is not None and g.norm != 0 for g in gradients)

    def _is_natural(self, parameter: int, end: NodeRecord) -> bool:
        """Return whether a gradient of zero says nothing of the model.

        So it is for rows that no index chose, for an expert without a row in this batch, for a
        bias whose parts cancel, for a weight that met nothing but zeros in the data; and, as far
        as no step was made, for what a factor of zero holds back that is about to leave zero.
        """
        users = list(self.context.consumers(self.context.parameter_nodes[parameter]))
        if any(0 in shape.dims for user in users for shape in user.outputs if shape is not None):
            return True
        # In a run, the rate may be zero for some steps, as in a warm-up.
        if (not self.context.probes or self.context.run is not None) and self._opens(end):
            return True
        if end not in users:
            return False
        record = self.recording.parameters[parameter]
        if end.operation in _ROWS:
            return True
        is_recurrent = self.recording.modules[record.module].class_name in _RECURRENT
        is_recurrent |= calls_from_zero(self.context, parameter) > 0
        if is_recurrent or end.operation.startswith(_OWN_ZEROS):
            return False
        if len(record.shape.dims) <= 1 and not end.operation.startswith("Mul"):
            return True
        if end.index in self._cancelled:
            return False
        return not any(True for _ in self._other_operands(end))

    def _opens(self, end: NodeRecord) -> bool:
        """Return whether a factor of zero has a gradient of its own."""
        waiting, depth = [end.index], 0
        while waiting and depth < _MOST_STEPS_DOWN:
            positions = {
                ref.node
                for position in waiting
                for ref in self.context.successors.get(position, ())
            }
            for position in positions:
                parameter = self.recording.nodes[position].parameter
                if parameter is not None and self._is_zero(parameter, "gradient"):
                    return True
            waiting, depth = list(positions), depth + 1
        return False

    def _is_zero(self, parameter: int, reach: str) -> bool:
        stat = self.context.parameter_stat(parameter)
        return stat is not None and stat.weight_norm == 0 and stat.reach == reach

    def _operands(self, node: NodeRecord) -> Iterator[NodeRecord]:
        """Yield the nodes of an operation's inputs, ignoring views and casts."""
        for ref in self.context.successors.get(node.index, ()):
            yield self.context.behind_views(ref.node, _CASTS)

    def _other_operands(self, node: NodeRecord) -> Iterator[NodeRecord]:
        return (operand for operand in self._operands(node) if operand.parameter is None)

    def _zero_operands(self, node: NodeRecord) -> tuple[int, ...]:
        """Return the zero parameters by which an operation multiplies."""
        trained = [
            operand.parameter
            for operand in self._operands(node)
            if operand.parameter is not None
            and self._is_zero(operand.parameter, "zero")
            and not self._is_bias(self.recording.parameters[operand.parameter], node)
        ]
        if trained or not node.operation.startswith(("Addmm", "Bmm", "Mm", "Mul", "Conv")):
            return tuple(sorted(trained))
        module = self.context.module_of(node)
        frozen = (p for p in self.recording.parameters if self.context.owner(p.index) == module)
        return tuple(
            p.index
            for p in frozen
            if self._is_zero(p.index, "frozen") and not self._is_bias(p, node)
        )

    def _is_bias(self, record: ParameterRecord, node: NodeRecord) -> bool:
        return len(record.shape.dims) == 1 and not node.operation.startswith("Mul")

    def _cause(self, position: int, ends: dict[int, list[int]]) -> int:
        """Return the dead end that gives another its zeros, or the dead end itself."""
        node = self.recording.nodes[position]
        if position in self._cancelled or self._zero_operands(node):
            return position
        for activation in flattening_activations(self.context, node):
            if activation.index in ends:
                return activation.index
        while True:
            below = list(self._other_operands(node))
            if len(below) != 1:
                return position
            node = below[0]
            if node.index in ends:
                return node.index


def _together(ends: list[DeadEnd]) -> DeadEnd:
    """Merge the dead ends of one line into the one nearest to the loss."""
    first = min(ends, key=lambda end: end.node.depth)
    return replace(
        first,
        zeros=tuple(sorted({zero for end in ends for zero in end.zeros})),
        parameters=tuple(sorted({p for end in ends for p in end.parameters})),
        in_recurrent_layer=all(end.in_recurrent_layer for end in ends),
    )
