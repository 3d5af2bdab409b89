"""Finds why autograd ended a step: which node, which lines."""

import re
from collections.abc import Callable, Iterable, Iterator
from traceback import walk_tb

from torch import nn
from torch.autograd.graph import Node

from gradscope.capture.errors import ENTRIES, StepFailedError, kind_of
from gradscope.capture.naming import NamedModel
from gradscope.capture.source.lines import Line, created, is_users
from gradscope.capture.source.statements import backward_code, function_of
from gradscope.capture.step.graph_records import GraphPosition
from gradscope.capture.step.sites import SiteMode
from gradscope.capture.training.history.carried_history import carried_over
from gradscope.recording.evidence.failures import (
    AutogradErrorRecord,
    CarriedHistory,
    ErrorLocation,
    PlaceRole,
)
from gradscope.target.outputs import (
    FrozenModelError,
    UnusableLossError,
)

_RESETS = re.compile(
    r"^(reset|init|detach|clear|repackage|zero)(_\w*)?_(hidden|states?|memory|cache|history|net)s?$"
    r"|^(reset|reset_all|detach_net)$"
)


class Diagnosis:
    """Finds the lines that explain why a step failed.

    Args:
        failed: The step.
        earlier: The lines of earlier forwards: parts of their graphs may be the cause.
    """

    def __init__(self, failed: StepFailedError, earlier: Iterable[SiteMode]) -> None:
        self._failed, self._capture, self._raised = failed, failed.capture, failed.raised
        self._earlier = earlier
        self._graph = failed.capture.graph
        self._call, self._inside = _users_lines(failed.raised)
        self._node = self._raising_node()

    def record(
        self,
        position: GraphPosition | None,
        site_of: Callable[[Line | None], int | None],
        *,
        step: int,
        named: NamedModel,
    ) -> AutogradErrorRecord:
        """Return the diagnosis.

        Args:
            position: Position of the graph's records; None if there is no graph.
            site_of: Returns the index of a line's record.
            step: Number of optimizer steps made before.
            named: The model's parameters and modules.
        """
        node, is_ours = self._node, isinstance(self._raised, UnusableLossError)
        function = None if node is None else function_of(self._graph.nodes[node])
        locations = tuple(
            ErrorLocation(role=role, site=site_of(line), operation=operation)
            for role, line, operation in self._positions()
            if line is not None or role in ("cut", "unrecorded")
        )
        return AutogradErrorRecord(
            kind="freed" if self._is_older(node) else kind_of(self._raised),
            step=step,
            exception="" if is_ours else type(self._raised).__name__,
            message=str(self._raised).strip(),
            subject=self._failed.subject,
            node=None if node is None or position is None else position.first_node + node,
            function=None if function is None else function.__name__,
            frozen=len(named.parameters) if self._is_frozen(named, locations) else None,
            reset=_reset_method(named.modules),
            carried=self._carried_history(named) if self._is_older(node) else (),
            locations=locations,
        )

    def _is_frozen(self, named: NamedModel, locations: Iterable[ErrorLocation]) -> bool:
        """Return whether nothing but frozen parameters keeps the loss from having a graph."""
        if isinstance(self._raised, FrozenModelError):
            return True
        if kind_of(self._raised) != "no-graph" or not named.parameters:
            return False
        # An attack on a frozen model differentiates its input, which a line may have cut off.
        has_cause = any(one.role in ("cut", "unrecorded") for one in locations)
        return not has_cause and not any(one.requires_grad for one in named.parameters)

    def _carried_history(self, named: NamedModel) -> tuple[CarriedHistory, ...]:
        # The history was carried over by a line that ran: the others need no search.
        ran = [line for sites in (self._capture.sites, *self._earlier) for line in sites.lines]
        first = self._capture.first_number
        carried = carried_over(named, self._graph.index, first, ran)
        return () if carried is None else (carried,)

    def _positions(self) -> Iterator[tuple[PlaceRole, Line | None, str]]:
        if kind_of(self._raised) != "in-place" or self._node is not None:
            yield "call", self._call, "backward"
        yield "inside", self._inside or self._return_of_function(), ""
        node = self._node
        if node is not None:
            yield "forward", self._line_of(node), self._graph.operations[node]
        kind = kind_of(self._raised)
        if kind == "no-graph":
            yield from self._cut()
        elif node is not None and kind in ("freed", "in-place"):
            yield from self._reuse(node)
        if kind == "in-place":
            yield from self._write()

    def _return_of_function(self) -> Line | None:
        """Return the line at which a custom function returned a value that autograd rejects."""
        if self._node is None or "returned an" not in str(self._raised):
            return None
        function = function_of(self._graph.nodes[self._node])
        return None if function is None else backward_code(function)

    def _cut(self) -> Iterator[tuple[PlaceRole, Line | None, str]]:
        """Yield the last cut before the loss, which left the loss without history."""
        tracker, root = self._capture.cuts, self._failed.root
        known = tracker.before(root) if root is not None else []
        if not known:  # values that left torch could not be followed
            known = [p for p, cut in enumerate(tracker.cuts) if cut.kind == "read" or cut.taken_out]
            known = known[-1:]
        if not known:
            return
        cut = tracker.cuts[known[-1]]
        if cut.kind != "no-grad":
            is_attribute = cut.operation == "data"
            yield "cut", cut.line, ".data" if is_attribute else f"{cut.operation}()"
            return
        # The first of them is the origin.
        position = next(other for other in known if tracker.cuts[other].kind == "no-grad")
        yield "switch", self._capture.switches.before(tracker.cuts[position]), ""
        yield "unrecorded", tracker.cuts[position].line, tracker.cuts[position].operation

    def _reuse(self, node: int) -> Iterator[tuple[PlaceRole, Line | None, str]]:
        """Yield the line that used a node before, or that took it from an earlier graph."""
        number = created(self._graph.nodes[node])
        call = None if number is None else self._capture.backwards.that_freed(number)
        if call is not None:
            yield "freed", call.line, call.name
        if self._is_older(node):
            for source, successors in enumerate(self._graph.successors):
                if not self._is_older(source) and any(self._is_older(n) for n, _ in successors):
                    yield "reuse", self._line_of(source), self._graph.operations[source]
                    return

    def _write(self) -> Iterator[tuple[PlaceRole, Line | None, str]]:
        if self._node is None:  # the error occurred in the forward
            yield "write", self._call, ""
            return
        number = created(self._graph.nodes[self._node])
        write = self._capture.writes.culprit(str(self._raised), number)
        if write is not None:
            yield "write", write.line, write.operation

    def _raising_node(self) -> int | None:
        """Return the node whose backward raised, or from which backward could not start."""
        kind = kind_of(self._raised)
        if not self._graph.nodes or kind == "no-graph":
            return None
        if kind == "non-scalar":
            return 0
        node = self._capture.last_operation()
        if node is not None:
            # torch's own nodes run none of the user's code: then it was a hook.
            is_hook = self._inside is not None and function_of(self._graph.nodes[node]) is None
            return self._hooked_node() if is_hook else node
        # A backward of the user's own code, which was not captured.
        is_cause = {"freed": self._was_freed, "in-place": _is_spoilt}.get(kind)
        if is_cause is None:
            return None
        nodes = enumerate(self._graph.nodes)
        return next((position for position, node in nodes if is_cause(node)), None)

    def _hooked_node(self) -> int | None:
        """Return the node at whose output a hook raised, None if several are possible.

        Tensor hooks run before node prehooks, so the failing gradient was not recorded.
        """
        ahead = self._graph.hooked - set(self._capture.arrived)
        return next(iter(ahead))[0] if len(ahead) == 1 else None

    def _was_freed(self, node: Node) -> bool:
        number = created(node)
        return number is not None and (
            number < self._capture.first_number
            or self._capture.backwards.that_freed(number) is not None
        )

    def _is_older(self, node: int | None) -> bool:
        """Return whether a node is older than this forward."""
        number = None if node is None else created(self._graph.nodes[node])
        return number is not None and number < self._capture.first_number

    def _line_of(self, node: int) -> Line | None:
        number = created(self._graph.nodes[node])
        if number is None or not self._is_older(node):
            return self._capture.line_of(self._graph.nodes[node])
        lines = (sites.find(number) for sites in self._earlier)
        return next((line for line in lines if line is not None), None)


def _users_lines(error: BaseException) -> tuple[Line | None, Line | None]:
    """Return the user's lines in a traceback: the one that called backward, and one inside it."""
    call, inside, is_in_backward = None, None, False
    for frame, number in walk_tb(error.__traceback__):
        is_in_backward = is_in_backward or frame.f_code in ENTRIES
        if is_users(frame.f_code):
            line = Line(frame.f_code, number)
            call, inside = (call, line) if is_in_backward else (line, inside)
    return call, inside


def _reset_method(modules: Iterable[nn.Module]) -> str | None:
    """Return a method that a training loop may call between steps, such as `reset_hidden`."""
    names = (name for kind in dict.fromkeys(map(type, modules)) for name in dir(kind))
    return next((name for name in names if _RESETS.search(name)), None)


def _is_spoilt(node: Node) -> bool:
    """Return whether a tensor saved by a node was written to since."""
    names = [name for name in dir(node) if name.startswith("_saved_")]
    for name in (*names, "saved_tensors"):
        try:
            # Unpacking raises if the version of the tensor has changed since it was saved.
            getattr(node, name, None)
        except RuntimeError as error:
            if kind_of(error) == "in-place":
                return True
    return False
