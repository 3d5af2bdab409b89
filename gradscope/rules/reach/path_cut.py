"""GS216: one of several paths from parameters to the loss is cut."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.codebooks import (
    StarvedEncoder,
    starved_choices,
    starved_encoders,
)
from gradscope.rules.helpers.cuts import (
    DERIVATIVE,
    call_of,
    is_cut_shortcut,
    is_made_of,
    is_sample,
    path_cuts,
)
from gradscope.rules.helpers.optimizers import positions
from gradscope.rules.helpers.recurrence import (
    calls_around,
    cuts_cell_states,
    is_connected,
    own_states,
    recurrent_of,
)
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_ARITHMETIC = frozenset({"AddBackward0", "AddcmulBackward0", "MulBackward0"})

_DIFFERENCES = frozenset({"AddcdivBackward0", "SubBackward0"})

_CUTS = frozenset({"data", "detach", "detach_", "new_tensor", "tensor"})

_CAT = "CatBackward0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCut(Rule):
    """One of several paths from parameters to the loss is cut.

    What it finds:
        A `detach()`, `.data` or `torch.tensor(…)` in the middle of the model's computation that
        stops the gradient of parameters with another path to the loss. Examples are a hidden state
        detached in every time step, and a standard deviation that enters the sample of a
        variational autoencoder through its `.data`. Also an inner step of meta-learning,
        `p - rate * gradient`, whose gradient comes from `autograd.grad` without `create_graph`. And
        an encoder whose decoder gets chosen codes, and no straight-through copy of them, be it the
        nearest codes or those with the highest score.

    Why it matters:
        The parameters learn, so nothing looks wrong, but they get no gradient through this path. A
        recurrent cell never learns to remember; a variance never learns from the reconstruction.

    How it is measured:
        The rule follows a cut to the operations that use its value. It is an error if a recurrent
        module uses its own result of an earlier call in at least `calls` calls of one forward, and
        no other path connects one of these calls with the next; a warning if it is the memory of an
        `nn.LSTMCell` whose hidden state connects them. It is a warning if a script's own
        loop calls the model step by step and detaches every state, or starts a recurrent module
        from the `.data` of another one's state. It is a note if the value is added to, or
        multiplies, a tensor with a gradient within the model's forward, and the detached tensor
        also reaches the loss by another path. It is a warning if features are concatenated through
        their `.data`, as a skip connection, or if two residual blocks or more add their detached
        input to what their layers make of it. It is also a note if a weight is divided by a
        detached number computed from it, such as its norm. A derivative without `create_graph` that
        is subtracted from a parameter, or multiplies one, is a warning if a variable or attribute
        of its function asks for second-order gradients, such as `first_order=False`, a note if
        there is no such switch, and fine if the switch asks for first-order ones. An encoder that
        chooses codes is a warning if the only user of its output is a comparison with the detached
        codes, while layers that learn get the codes. So is one whose scores lead to the loss by
        their softmax alone, as into an entropy or a divergence, without a layer and without looking
        up a label or an action.

    How to fix it:
        Use the tensor itself; for codes, `z + (codes - z).detach()`. If the cut is intended,
        nothing needs to be done.

    When it may be wrong:
        A note appears wherever a gradient is stopped on purpose. The rule skips straight-through
        estimators and other sums with a part of themselves, targets of a loss, copies of other
        modules, and draws from distributions, which GS217 judges.

    Source:
        torch documentation, `Tensor.detach`; Kingma and Welling 2013, "Auto-Encoding Variational
        Bayes" (arXiv 1312.6114), on the path through the sample.
        van den Oord et al. 2017, "Neural Discrete Representation Learning", section 3.2.
        Measured: the error in 3 of 3 recurrent loops that detach in every time step, and in none
        of 7 that detach every few steps, once, or one part of what they refine.
    """

    code: ClassVar[str] = "GS216"
    name: ClassVar[str] = "path-cut"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("path cuts"),)

    calls: int = 3
    """Number of states detached in one forward. Chosen: fewer are a truncation."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every cut of one of several paths."""
        yield from self._of_encoders(context)
        for cut, parameters in path_cuts(context):
            if cut.operation == DERIVATIVE and _is_inner_step(context, cut):
                yield from self._of_inner_steps(context, cut, parameters)
            if cut.operation not in _CUTS or is_sample(context, cut):
                continue
            if cut.call is None:
                yield from self._outside_of_models(context, cut)
                yield from self._of_a_first_state(context, cut, parameters)
                continue
            module = self._recurrent_module(context, cut)
            if module is not None:
                yield self._of_states(context, cut, module, cut.sources)
            elif (cell := self._cell(context, cut)) is not None:
                yield self._of_states(
                    context, cut, cell, cut.sources, severity="warning", what="memory"
                )
            elif (join := _join(context, cut) or _divided(context, cut)) is not None:
                yield self._of_a_factor(context, cut, parameters, join)

    def _of_encoders(self, context: RuleContext) -> Iterator[Finding]:
        for one in starved_encoders(context):
            yield self._of_an_encoder(context, one, "a comparison with the codes")
        for one in starved_choices(context):
            yield self._of_an_encoder(context, one, "a term on its own scores")

    def _of_an_encoder(self, context: RuleContext, found: StarvedEncoder, term: str) -> Finding:
        names = positions(context, found.parameters)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return self.finding(
            context,
            message=(
                f"only {term} trains {', '.join(names[:3])}{more}: "
                f"{call_of(found.cut)} chooses the codes, and what uses them passes no gradient on"
            ),
            remedy="pass on `z + (codes - z).detach()`, a straight-through estimator",
            site=found.codes.site,
            related=(
                context.related(found.cut.site, "the codes are chosen here"),
                context.related(found.commitment.site, "its only term of the loss"),
            ),
            severity="warning",
            parameters=found.parameters,
            evidence={"operation": found.cut.operation, "parameters_behind": len(found.parameters)},
            count=len(found.parameters),
        )

    def _of_inner_steps(
        self, context: RuleContext, cut: PathCutRecord, parameters: tuple[int, ...]
    ) -> Iterator[Finding]:
        """Yield a finding for inner steps whose gradient is a constant."""
        if cut.second_order is False:
            return
        meant = ", though second-order gradients are asked for" if cut.second_order else ""
        yield self.finding(
            context,
            message=(
                "the gradient of the inner step is a constant: the outer loss trains "
                f"{len(parameters)} parameters by first-order gradients{meant}"
            ),
            remedy="pass create_graph=True to autograd.grad",
            site=cut.site,
            related=(context.related(context.recording.nodes[cut.joins[0]].site, "used here"),),
            severity="warning" if cut.second_order else "note",
            parameters=parameters,
            evidence={"operation": cut.operation, "parameters_behind": len(parameters)},
            count=len(parameters),
        )

    def _recurrent_module(self, context: RuleContext, cut: PathCutRecord) -> int | None:
        """Return the recurrent module whose own detached state keeps it from learning, if any."""
        assert cut.call is not None
        recording = context.recording
        outer = recording.calls[cut.call].module
        # Each forward of a model may cut once, without a loop over time.
        forwards = sum(call.module == outer for call in recording.calls)
        context.measured(
            self.code,
            "states_cut",
            cut.sources,
            self.calls * max(1, forwards),
            subject=cut.operation,
            site=cut.site,
        )
        if cut.sources < self.calls * max(1, forwards):
            return None
        states = (call for call in own_states(context, cut) if not is_connected(context, call))
        return next((recording.calls[call].module for call in states), None)

    def _cell(self, context: RuleContext, cut: PathCutRecord) -> int | None:
        """Return the module whose memory is detached while its hidden state is not, if any."""
        if cut.sources < self.calls or not cuts_cell_states(context, cut):
            return None
        recording, states = context.recording, own_states(context, cut)
        modules = {recording.calls[call].module for call in states}
        every = sum(call.module in modules for call in recording.calls)
        # A truncation detaches it now and then.
        return modules.pop() if len(modules) == 1 and cut.sources >= every - 1 else None

    def _outside_of_models(self, context: RuleContext, cut: PathCutRecord) -> Iterator[Finding]:
        """Yield a finding for a script's own loop over time that detaches every state."""
        calls = context.recording.calls
        by_module: dict[int, list[int]] = {}
        for call in own_states(context, cut):
            by_module.setdefault(calls[call].module, []).append(call)
        made = {
            call for node in context.first.nodes for call in calls_around(context, node.module_call)
        }
        for module, states in by_module.items():
            context.measured(
                self.code,
                "states_cut",
                len(states),
                self.calls,
                subject=cut.operation,
                site=cut.site,
            )
            own = [call.index for call in calls if call.module == module and call.index in made]
            if len(states) >= self.calls and not any(is_connected(context, one) for one in own):
                yield self._of_states(context, cut, module, len(states), severity="warning")

    def _of_a_first_state(
        self, context: RuleContext, cut: PathCutRecord, parameters: tuple[int, ...]
    ) -> Iterator[Finding]:
        """Yield a finding if a recurrent module starts from the `.data` of another one's state."""
        makers = {recurrent_of(context, ref.node) for ref in cut.origins}
        users = {recurrent_of(context, node) for node in cut.joins} - {None}
        # `detach()` stops this gradient on purpose; `.data` is mostly a way to get at the tensor.
        if cut.operation != "data" or None in makers or len(makers) != 1 or not users - makers:
            return
        modules = context.recording.modules
        maker, user = (
            modules[min(one for one in ones if one is not None)].path
            for ones in (makers, users - makers)
        )
        yield self.finding(
            context,
            message=(
                f".data cuts the state of {maker} from which {user} starts: {len(parameters)} "
                "parameters learn by other paths only"
            ),
            remedy="pass on the state itself",
            site=cut.site,
            related=(context.related(cut.last, "this operation made the state"),),
            severity="warning",
            parameters=parameters,
            evidence={"operation": cut.operation, "parameters_behind": len(parameters)},
            count=len(parameters),
        )

    def _of_states(
        self,
        context: RuleContext,
        cut: PathCutRecord,
        module: int,
        states: int,
        *,
        severity: Severity = "error",
        what: str = "state",
    ) -> Finding:
        lineage = context.shared(Reach).subtrees.lineage
        parameters = [
            p.index
            for p in context.recording.parameters
            if p.module is not None and module in lineage(p.module)
        ]
        name = context.recording.modules[module].path
        return self.finding(
            context,
            message=(
                f"{call_of(cut)} cuts the {what} of {name} in every time step: no gradient passes "
                f"{'from' if what == 'state' else 'through it from'} one step to the one before"
            ),
            remedy="pass on the state itself, and detach it only between sequences",
            site=cut.site,
            related=(context.related(cut.last, "this operation made the state"),),
            severity=severity,
            parameters=parameters,
            evidence={"operation": cut.operation, "states_cut": states, "limit": self.calls},
            count=states,
        )

    def _of_a_factor(
        self, context: RuleContext, cut: PathCutRecord, parameters: tuple[int, ...], join: int
    ) -> Finding:
        node = context.recording.nodes[join]
        return self.finding(
            context,
            message=(
                f"{call_of(cut)} cuts one of several paths to the loss: {len(parameters)} "
                "parameters learn by the others only"
            ),
            remedy="use the tensor itself, unless this path is meant to be cut",
            site=cut.site,
            related=(
                context.related(cut.last, "the tensor with its gradient"),
                context.related(node.site, "used here without it"),
            ),
            severity="warning" if _is_skip(context, cut) else "note",
            parameters=parameters,
            evidence={"operation": cut.operation, "parameters_behind": len(parameters)},
            count=len(parameters),
        )


def _is_inner_step(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a derivative is subtracted from a parameter, or multiplied by one."""
    nodes = context.recording.nodes
    is_arithmetic = all(nodes[node].operation in _ARITHMETIC | _DIFFERENCES for node in cut.joins)
    operands = (ref.node for node in cut.joins for ref in context.successors.get(node, ()))
    return is_arithmetic and any(nodes[node].kind == "parameter" for node in operands)


def _join(context: RuleContext, cut: PathCutRecord) -> int | None:
    """Return the operation that combines the detached value with a tensor with a gradient.

    None where it does anything else with it, or what it is combined with was made of the same.
    """
    nodes = context.recording.nodes
    is_used = any(nodes[ref.node].kind != "parameter" for ref in cut.origins)
    if not is_used or any(nodes[node].module_call is None for node in cut.joins):
        return None
    if _is_skip(context, cut):
        return cut.joins[0]
    for node in cut.joins:
        operands = context.successors.get(node, ())
        # What was detached has no edge.
        if nodes[node].operation not in _ARITHMETIC or len(operands) != 1:
            return None
        if is_made_of(context, operands[0], cut.origins):
            return None
    return cut.joins[0] if cut.joins else None


def _is_skip(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether it cuts only shortcuts: of a U-Net by `.data`, or of residual blocks."""
    nodes = context.recording.nodes
    is_joined = all(nodes[node].operation == _CAT for node in cut.joins)
    return (cut.operation == "data" and is_joined) or is_cut_shortcut(context, cut)


def _divided(context: RuleContext, cut: PathCutRecord) -> int | None:
    """Return a division of a weight by a value computed from it, such as a detached norm.

    Quantisers multiply by their detached scale again, and are left out.
    """
    nodes = context.recording.nodes
    origins = {ref.node for ref in cut.origins}
    if not cut.joins or any(nodes[origin].kind != "parameter" for origin in origins):
        return None
    for join in cut.joins:
        operands = {ref.node for ref in context.successors.get(join, ())}
        is_own = len(operands) == 1 and operands <= origins
        if nodes[join].operation != "DivBackward0" or not is_own or nodes[join].module_call is None:
            return None
    return cut.joins[0]
