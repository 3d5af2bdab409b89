"""Checks custom `autograd.Function`s by finite differences, and what they do not return."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager
from dataclasses import field

import torch
from torch import Tensor
from torch.autograd import Function

from gradscope.capture.naming import dtype_name
from gradscope.capture.observed_calls import Args
from gradscope.capture.reading import is_plain_float
from gradscope.capture.source.lines import Caller, Line
from gradscope.capture.source.statements import backward_code, function_of, line_of_returned
from gradscope.capture.step.graph import Graph
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.gradient_check import (
    DOUBLE,
    MOST_ELEMENTS,
    SINGLE,
    ChosenGradientError,
    Comparison,
    IgnoredGradientError,
    Precision,
    compare,
)
from gradscope.recording.evidence.failures import (
    CheckOutcome,
    CustomFunctionRecord,
    InputCheck,
    WithheldRecord,
)
from gradscope.target.user_code import UserCode

_MOST = 3
"""Maximum number of calls kept per function, with inputs of different shapes."""


class NotKeptError(Exception):
    """The inputs of a call cannot be kept; the message says why."""


@dataclass(frozen=True, slots=True)
class Application:
    """One call of a custom function."""

    args: tuple[object, ...]
    """Arguments, with copies of tensors."""
    differentiable: tuple[int, ...]
    line: Line | None


def with_copies(args: Args) -> tuple[object, ...]:
    """Return arguments with copies of tensors, because later operations may write to them.

    Raises:
        NotKeptError: They are too large.
    """
    if sum(arg.numel() for arg in args if isinstance(arg, Tensor)) > MOST_ELEMENTS:
        raise NotKeptError("its inputs are too large")
    return tuple(arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args)


@dataclass(slots=True)
class Applications:
    """The first calls of a custom function, with inputs of different shapes."""

    function: type[Function]
    kept: Callable[[tuple[object, ...]], tuple[object, ...]] = with_copies
    """Returns what is kept of the arguments, or raises `NotKeptError`."""
    found: list[Application] = field(default_factory=list)
    line: Line | None = None
    """Line of the first call."""
    skip_reason: str = "a second forward did not call it"
    """Why no call was kept."""
    _shapes: set[tuple[object, ...]] = field(default_factory=set)

    def note(self, args: Args, line: Line | None) -> None:
        """Store copies of the inputs, unless there are enough with these shapes."""
        self.line = self.line or line
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, Tensor))
        # A backward may be right for some shapes only, as one that assumes a square.
        if shapes in self._shapes or len(self._shapes) == _MOST:
            return
        positions = tuple(
            position
            for position, arg in enumerate(args)
            if isinstance(arg, Tensor) and arg.requires_grad
        )
        if not positions:  # as at the first step of a recurrence, whose state is zero
            self.skip_reason = "none of its inputs requires grad"
            return
        self._shapes.add(shapes)
        try:
            self.found.append(Application(self.kept(args), positions, line))
        except NotKeptError as error:
            self.skip_reason = str(error)


def first_input(function: type[Function]) -> int:
    """Return the index of a forward's first input: after the context, if it gets one."""
    return 1 if function.setup_context is Function.setup_context else 0


_WRONG = 1e-2
"""Deviation above which a gradient is wrong. Measured: right gradients stay below 1e-4; mistakes of
sign, factor and term start at 0.3."""
_REVERSAL = re.compile(r"revers|revgrad|gradrev|grl|negat", re.IGNORECASE)
"""Names of functions that turn gradients round."""


def probe_custom_functions(context: ProbeContext) -> str | None:
    """Record for every custom function of the forward whether its backward is right."""
    functions = custom_functions(context.capture.graph)
    if not functions:
        return None
    if context.opaque:
        return "compiled code runs, which cannot be observed"
    if not context.reruns:
        return "the forward may not be repeated (--probe-steps 0)"
    with _noted(functions) as noted:
        try:
            context.forward()
        except GradscopeError as error:
            return f"the forward cannot be run again: {error.what}"
    for applications in noted:
        with context.as_at_first():
            record = checked(applications, context.assembler.site_of)
        if record.outcome == "unchecked":
            context.assembler.skip(
                f"the backward of {record.name} against finite differences", record.reason or ""
            )
        context.assembler.note(record)
    return None


def custom_functions(graph: Graph) -> list[type[Function]]:
    """Return the classes of the graph's custom functions, without torch's own."""
    found = (function_of(node) for node in graph.nodes)
    return [
        function
        for function in dict.fromkeys(found)
        if function is not None and not function.__module__.startswith("torch.")
    ]


@contextmanager
def _noted(functions: Iterable[type[Function]]) -> Iterator[list[Applications]]:
    """Record the arguments of the functions while the block runs.

    It replaces `forward` and not `Function.apply`, because users keep references such as `swish =
    Swish.apply`.
    """
    with ExitStack() as undo:
        noted = []
        for function in functions:
            applications = Applications(function)
            # An inherited `forward` must not become the class's own when it is restored.
            own = vars(function).get("forward")
            # autograd reads `forward` from the class on every call, so old references to `apply`
            # see this.
            forward = staticmethod(_noting(function.forward, applications))
            function.forward = forward  # type: ignore[method-assign]
            if own is None:
                undo.callback(delattr, function, "forward")
            else:
                undo.callback(setattr, function, "forward", own)
            noted.append(applications)
        yield noted


def _noting(forward: Callable[..., object], applications: Applications) -> Callable[..., object]:
    caller = Caller()
    first = first_input(applications.function)

    def noting(*args: object) -> object:
        applications.note(args[first:], caller.line_of_apply(sys._getframe()))
        return forward(*args)

    return noting


def checked(
    applications: Applications, site_of: Callable[[Line | None], int | None]
) -> CustomFunctionRecord:
    """Compare the backward of a function with finite differences, on inputs of its calls.

    It draws random numbers, and runs the function's code.

    Args:
        applications: Calls of the function.
        site_of: Returns the index of a line's record.
    """
    function = applications.function
    checks: tuple[InputCheck, ...] = ()
    outcome: CheckOutcome = "unchecked"
    reason = applications.skip_reason
    for application in applications.found:
        try:
            found = _checks(function, application)
        except ChosenGradientError as error:
            is_ignored = isinstance(error, IgnoredGradientError)
            outcome, reason = "ignoring" if is_ignored else "chosen", error.what
            if _is_unreversed(function, application):
                outcome = "unreversed"
            break
        except GradscopeError as error:
            reason = error.what
            continue
        checks = max((checks, found), key=_worst)
    if checks and outcome not in ("chosen", "ignoring", "unreversed"):
        outcome = "wrong" if _worst(checks) > _WRONG else "right"
    return CustomFunctionRecord(
        name=function.__name__,
        operation=f"{function.__name__}Backward",
        outcome=outcome,
        reason=reason if outcome in ("chosen", "unchecked") else None,
        applied=site_of(applications.line),
        backward=site_of(backward_code(function)),
        inputs=checks,
    )


def _is_unreversed(function: type[Function], application: Application) -> bool:
    """Return whether a function that is named after it does not turn gradients round."""
    if not _REVERSAL.search(function.__name__) or len(application.differentiable) != 1:
        return False
    (position,) = application.differentiable
    given = application.args[position]
    if not isinstance(given, Tensor) or not is_plain_float(given):
        return False
    leaf = given.clone().requires_grad_()
    args = [leaf if at == position else arg for at, arg in enumerate(application.args)]
    with UserCode("it raised"), torch.inference_mode(False), torch.enable_grad():
        output = function.apply(*args)
        if not isinstance(output, Tensor) or not torch.equal(output, given):
            return False
        # Given ones, a reversal returns negative numbers only.
        (gradient,) = torch.autograd.grad(output, leaf, torch.ones_like(output), allow_unused=True)
    return gradient is not None and bool(gradient.gt(0).all())


def _worst(checks: tuple[InputCheck, ...]) -> float:
    return max((check.deviation for check in checks), default=-1)


def _checks(function: type[Function], application: Application) -> tuple[InputCheck, ...]:
    """Compare the gradients of one call.

    Raises:
        ChosenGradientError: They are not meant to be derivatives.
        GradscopeError: They cannot be compared, or the function's code raised.
    """
    try:
        return _checks_in(DOUBLE, function, application)
    except ChosenGradientError:
        raise
    except GradscopeError as error:
        try:
            return _checks_in(SINGLE, function, application)
        except ChosenGradientError:
            raise
        except GradscopeError:
            # The reason in float64 says more: in float32 most functions fail for lack of precision.
            raise error from None


def _checks_in(
    precision: Precision, function: type[Function], application: Application
) -> tuple[InputCheck, ...]:
    dtype = dtype_name(precision.dtype)
    with UserCode(f"it raised in {dtype}"), torch.inference_mode(False):
        found = compare(function, application.args, application.differentiable, precision)
    names = input_names(function)
    return tuple(_input_check(one, names, dtype) for one in found)


def _input_check(found: Comparison, names: list[str], dtype: str) -> InputCheck:
    analytical, numerical = found.analytical, found.numerical
    factor = float((analytical @ numerical) / (numerical @ numerical))
    # Of both, so that a gradient of zero deviates by 1, and not by infinity.
    size = max(float(analytical.norm()), float(numerical.norm()))
    position = found.position
    return InputCheck(
        name=names[position] if position < len(names) else f"input {position}",
        dtype=dtype,
        elements=analytical.numel(),
        analytical=float(analytical.norm()),
        numerical=float(numerical.norm()),
        deviation=float((analytical - numerical).norm()) / size,
        factor=factor,
        residual=float((analytical - factor * numerical).norm()) / size,
        is_constant=found.is_constant,
    )


def input_names(function: type[Function]) -> list[str]:
    """Return the names of a function's inputs in its forward."""
    try:
        parameters = inspect.signature(inspect.unwrap(function.forward)).parameters.values()
    except (TypeError, ValueError):
        return []
    named = [
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    return named[first_input(function) :]


def probe_withheld_gradients(context: ProbeContext) -> str | None:
    """Record the parameters without a gradient that were given to a custom function."""
    if context.opaque:
        return "compiled code cannot be observed"
    for function, position, parameter in dict.fromkeys(_without_gradient(context)):
        names = input_names(function)
        context.assembler.note(
            WithheldRecord(
                function=function.__name__,
                input=names[position] if position < len(names) else f"input {position}",
                parameter=parameter,
                returned=context.assembler.site_of(line_of_returned(function, position)),
            )
        )
    return None


def _without_gradient(context: ProbeContext) -> Iterator[tuple[type[Function], int, int]]:
    """Yield function, index of the input, and each parameter that the input was made of."""
    graph = context.capture.graph
    missing = {
        node: parameter
        for parameter, node in context.capture.parameter_nodes().items()
        if not context.measured.has_gradient(parameter) and graph.leaves[node].grad is None
    }
    if not any(function_of(node) for node in graph.nodes) or not missing:
        return
    given = {node for node, _ in context.measured.arrived}
    users: dict[int, list[int]] = {}
    for user, successors in enumerate(graph.successors):
        for following, _ in successors:
            users.setdefault(following, []).append(user)
    for start, parameter in missing.items():
        for position, user in _ends(start, users, given):
            function = function_of(graph.nodes[user])
            if function is not None and not function.__module__.startswith("torch."):
                followers = [node for node, _ in graph.nodes[user].next_functions]
                yield function, followers.index(graph.nodes[position]), parameter


def _ends(start: int, users: dict[int, list[int]], given: Set[int]) -> Iterator[tuple[int, int]]:
    """Yield the nodes that were given a gradient and passed none on towards a node.

    Each comes with the node to which it passed none.
    """
    waiting, seen = [start], {start}
    while waiting:
        position = waiting.pop()
        for user in users.get(position, ()):
            # It got a gradient, and its successor none: it is where the gradient was withheld.
            if user in given:
                yield position, user
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
