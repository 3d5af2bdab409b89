"""Where backward becomes non-finite: the functions of torch, and the step."""

import math
from collections.abc import Iterator
from typing import Literal

from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import GradientStat, NodeRecord, TensorRef
from gradscope.rules.context import RuleContext

Sign = Literal["zeros", "nonfinite", "none"]
"""Property of an operation's output at elements where its derivative is infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Singularity:
    """A point at which a function or its derivative is not finite."""

    function: str
    """Name of the function as users write it."""
    where: str
    """Point of the singularity: `its argument is 0`."""
    sign: Sign
    remedy: str
    needs_zero: bool = False
    """Whether the function itself is singular only where an operand is 0."""


_ADD_INSIDE = "add a small number to the argument, such as {}(x + 1e-8)"

_LOG_REMEDY = (
    "use log_softmax, logsigmoid or a loss with logits instead of the log of a probability, or "
    "add a small number to the argument, such as log(x + 1e-8)"
)

_SAFE_ANGLE = "keep the argument away from 1 and -1, such as with x.clamp(-1 + 1e-6, 1 - 1e-6)"

_NORM_REMEDY = "add a small number under the root: torch.sqrt(x.square().sum(-1) + 1e-8)"

_SPECTRUM = (
    "the gradient needs distinct values: use eigvalsh or svdvals if the vectors are not needed, "
    "or add a small random symmetric matrix"
)

_DIVISION = "add a small number to the denominator, or clamp it from below"


def _zero(function: str, sign: Sign, remedy: str | None = None) -> Singularity:
    return Singularity(
        function=function,
        where="its argument is 0",
        sign=sign,
        remedy=remedy or _ADD_INSIDE.format(function),
        needs_zero=True,
    )


def _edge(function: str) -> Singularity:
    return Singularity(
        function=function, where="its argument is 1 or -1", sign="none", remedy=_SAFE_ANGLE
    )


def _spectrum(function: str, values: str) -> Singularity:
    return Singularity(
        function=function, where=f"two {values} are equal", sign="none", remedy=_SPECTRUM
    )


_DIVIDES = Singularity(
    function="division",
    where="the denominator is 0",
    sign="nonfinite",
    remedy=_DIVISION,
    needs_zero=True,
)

SINGULARITIES: dict[str, Singularity] = {
    "acos": _edge("acos"),
    "asin": _edge("asin"),
    "atanh": _edge("atanh"),
    "erfinv": _edge("erfinv"),
    "atan2": Singularity(
        function="atan2",
        where="both arguments are 0",
        sign="zeros",
        remedy="keep one of the arguments away from 0",
        needs_zero=True,
    ),
    "cdist": Singularity(
        function="cdist", where="two points are equal", sign="zeros", remedy=_NORM_REMEDY
    ),
    "div": _DIVIDES,
    "linalgeigh": _spectrum("eigh", "eigenvalues"),
    "linalgeig": _spectrum("eig", "eigenvalues"),
    "linalgsvd": _spectrum("svd", "singular values"),
    "linalgvectornorm": _zero("norm", "zeros", _NORM_REMEDY),
    "log": _zero("log", "nonfinite", _LOG_REMEDY),
    "log10": _zero("log10", "nonfinite", _LOG_REMEDY),
    "log1p": Singularity(
        function="log1p", where="its argument is -1", sign="nonfinite", remedy=_LOG_REMEDY
    ),
    "log2": _zero("log2", "nonfinite", _LOG_REMEDY),
    "logit": Singularity(
        function="logit",
        where="its argument is 0 or 1",
        sign="nonfinite",
        remedy="pass eps, such as torch.logit(p, eps=1e-6), or use the logits directly",
    ),
    "norm": _zero("norm", "zeros", _NORM_REMEDY),
    "pow": _zero("pow", "zeros", "add a small number to the base, such as (x + 1e-8) ** p"),
    "rdiv": _DIVIDES,
    "reciprocal": _DIVIDES,
    "rsqrt": _zero("rsqrt", "nonfinite"),
    "rtruediv": _DIVIDES,
    "sqrt": _zero("sqrt", "zeros"),
    "std": Singularity(
        function="std",
        where="its input is a single number or equal numbers",
        sign="zeros",
        remedy="add 1e-8 to var(...) before the square root, and pass at least two numbers",
    ),
    "truedivide": _DIVIDES,
    "xlogy": _zero("xlogy", "nonfinite", _LOG_REMEDY),
}
"""Singularities, by the operation's plain name."""

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38, "float64": 1.8e308}
"""Largest finite number of each type."""


def plain_name(operation: str) -> str:
    """Return an operation's name as its backward node and the dispatcher share it.

    `LinalgVectorNormBackward0` and `linalg_vector_norm` are `linalgvectornorm`.
    """
    return operation.partition("Backward")[0].replace("_", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBreak:
    """An operation that was given a finite gradient and returned one that is not."""

    node: NodeRecord
    given: GradientStat
    returned: GradientStat
    parameters: tuple[int, ...]
    """Parameters whose gradient is not finite because of this operation."""
    order: int
    """Index in the order in which backward reached it."""


def gradient_breaks(context: RuleContext) -> tuple[GradientBreak, ...]:
    """Return the breaks of the first step, in backward's order."""
    stats = context.shared(forward_stats)
    blamed: dict[TensorRef, list[NodeRecord]] = {}
    for node in context.first.nodes:
        if node.kind == "operation" and _given(context, node) is not None:
            for ref in context.successors.get(node.index, ()):
                if _broke(context, ref):
                    blamed.setdefault(ref, []).append(node)
    broken: dict[int, list[TensorRef]] = {}
    for ref, nodes in blamed.items():
        # Backward adds up what several users return: only their values tell which one broke it.
        singular = [node for node in nodes if is_singular(stats, node)]
        for node in singular or nodes:
            broken.setdefault(node.index, []).append(ref)
    found = [_break(context, context.recording.nodes[node], refs) for node, refs in broken.items()]
    return tuple(sorted((one for one in found if one), key=lambda one: one.order))


def _break(context: RuleContext, node: NodeRecord, broken: list[TensorRef]) -> GradientBreak | None:
    given, returned = _given(context, node), gradient_of(context, broken[0])
    if given is None or returned is None:
        return None
    return GradientBreak(
        node=node,
        given=given[1],
        returned=returned,
        parameters=_spoilt(context, broken),
        order=given[0],
    )


def is_singular(stats: dict[TensorRef, ForwardStat], node: NodeRecord) -> bool:
    """Return whether an operation's own values say that its derivative is infinite."""
    singularity = SINGULARITIES.get(plain_name(node.operation))
    output = stats.get(TensorRef(node=node.index, slot=0))
    if singularity is None or output is None:
        return False
    # Where the output cannot show the point, any of its elements may be there.
    counts = {"zeros": output.zeros, "nonfinite": output.nonfinite, "none": 1}
    return counts[singularity.sign] > 0


def gradient_of(context: RuleContext, ref: TensorRef) -> GradientStat | None:
    """Return the gradient of a tensor or a parameter, None without measurements."""
    ref = context.first.measured(ref)
    parameter = context.recording.nodes[ref.node].parameter
    if parameter is not None:
        left = context.parameter_stat(parameter)
        return None if left is None else left.gradient
    stat = context.tensor_stat(ref.node, ref.slot)
    return None if stat is None else stat.gradient


def forward_stats(context: RuleContext) -> dict[TensorRef, ForwardStat]:
    """Return statistics of the forward's tensors, as far as they were measured."""
    return {stat.tensor: stat for stat in context.recording.evidence_of(ForwardStat)}


def nonfinite_nodes(context: RuleContext) -> frozenset[int]:
    """Return the nodes with an output that is not finite in the forward."""
    stats = context.shared(forward_stats)
    return frozenset(ref.node for ref, stat in stats.items() if stat.nonfinite)


def forward_inputs(context: RuleContext, node: int) -> tuple[TensorRef, ...]:
    """Return the tensors that an operation took, of views the tensors that they view."""
    found = []
    for ref in context.successors.get(node, ()):
        while context.recording.nodes[ref.node].kind == "view":
            onward = context.successors.get(ref.node, ())
            if not onward:
                break
            ref = onward[0]
        found.append(ref)
    return tuple(found)


def _is_finite(gradient: GradientStat | None) -> bool:
    return gradient is None or not gradient.is_broken


def _given(context: RuleContext, node: NodeRecord) -> tuple[int, GradientStat] | None:
    """Return order and numbers of the gradient a node was given; None for none or a broken one."""
    arrived = _arrived(context, node)
    if not arrived or not all(_is_finite(gradient) for _, gradient in arrived):
        return None
    return arrived[0]


def _arrived(context: RuleContext, node: NodeRecord) -> list[tuple[int, GradientStat]]:
    stats = [context.tensor_stat(node.index, slot) for slot in range(len(node.outputs))]
    return [(stat.order or 0, stat.gradient) for stat in stats if stat and stat.gradient]


def _broke(context: RuleContext, ref: TensorRef) -> bool:
    """Return whether a tensor's gradient is not finite although all that was given for it was."""
    if _is_finite(gradient_of(context, ref)):
        return False
    users = [context.recording.nodes[user] for user in context.users.get(ref.node, ())]
    return all(
        _is_finite(gradient)
        for user in users
        if _uses(context, user, ref)
        for _, gradient in _arrived(context, user)
    )


def _uses(context: RuleContext, user: NodeRecord, ref: TensorRef) -> bool:
    return ref in context.successors[user.index]


def _spoilt(context: RuleContext, broken: list[TensorRef]) -> tuple[int, ...]:
    """Return the parameters that a non-finite gradient was passed on to."""
    return tuple(sorted(set(_spoilt_from(context, broken))))


def _spoilt_from(context: RuleContext, broken: list[TensorRef]) -> Iterator[int]:
    waiting, seen = list(broken), set(broken)
    while waiting:
        ref = waiting.pop()
        if _is_finite(gradient_of(context, ref)):
            continue
        parameter = context.recording.nodes[ref.node].parameter
        if parameter is not None:
            yield parameter
        onward = context.successors.get(ref.node, ())
        waiting += [following for following in onward if following not in seen]
        seen.update(onward)


@dataclass(frozen=True, slots=True)
class BrokenStep:
    """The first step of an optimizer that took in NaN or infinity, and gave it to the weights."""

    context: RuleContext
    series: Series
    window: Window
    count: int
    """Number of the optimizer's steps that are broken."""

    @property
    def step(self) -> int:
        """Its number in the run."""
        return self.window.step.step

    @property
    def backward(self) -> BackwardEvent:
        """The pass whose loss is no number, the last one where each is."""
        passes = self.window.passes
        return next((one for one in passes if not math.isfinite(_loss(one))), passes[-1])

    @property
    def loss(self) -> float:
        """Loss of the first non-finite pass, otherwise of the last pass."""
        return _loss(self.backward)

    @property
    def related(self) -> RelatedLocation | None:
        """The line of the step."""
        return self.context.related(
            self.window.step.site, "the step that applies it to the weights"
        )

    @property
    def followers(self) -> str:
        """Number of similar steps, for the end of a message."""
        return f", as in {self.count} of {self.series.step_count} steps" * (self.count > 1)

    @property
    def remedy(self) -> str:
        """Advice on how to find out more."""
        recording = self.context.recording
        # Manual steps of a script are not examined one by one.
        if not recording.captured_steps or self.series.record is None:
            return "check the batch, the weights and the loss computation with torch.isfinite"
        is_watched = recording.command == "watch"
        how = "tensor_every=1" if is_watched else f"--tensors-at {self.step}"
        return f"run it again with {how} to find the operation that breaks"

    @property
    def parameters(self) -> tuple[int, ...]:
        """Trained parameters of the series, or of the model if the series has none."""
        trained = (one.index for one in self.context.recording.parameters if one.requires_grad)
        return self.series.parameters or tuple(trained)


def broken_steps(context: RuleContext) -> tuple[BrokenStep, ...]:
    """Return the first such step of each optimizer whose last step is one too."""
    found = []
    for series in context.shared(Windows).series:
        # An optimizer may skip such a step itself: then weights and loss stay finite.
        measured = [one for one in series.windows if one.step.knows_nonfinite]
        broken = [one for one in measured if one.step.nonfinite and one.passes]
        if broken and broken[-1] is measured[-1]:
            found.append(BrokenStep(context, series, broken[0], len(broken)))
    return tuple(found)


def _loss(event: BackwardEvent) -> float:
    loss = event.loss
    # A loss that is unknown is taken for a finite one.
    return 0.0 if loss is None else loss
