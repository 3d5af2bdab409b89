"""GS704: terms of the loss that train nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from gradscope.analysis.surroundings import Surroundings
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import call_of, path_cuts
from gradscope.rules.helpers.loss.flow import (
    nodes_behind,
    parameters_behind,
    sums_of_examples,
    sums_of_loss,
)
from gradscope.rules.helpers.optimizers import positions
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_DERIVATIVE = "autograd.grad"
_CREATE_GRAPH = "pass create_graph=True to autograd.grad"
_INDEXING = ("GatherBackward", "IndexBackward", "IndexSelectBackward", "EmbeddingBackward")
"""Operations that take elements by indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTermWithoutGradient(Rule):
    """A term of the loss trains nothing: it has no gradient, or none that a step uses.

    What it finds:
        A sum of terms in which one term was computed from trainable parameters and has no gradient,
        while another has one: a penalty on a gradient from `autograd.grad` without `create_graph`,
        or a term that was detached, computed under `no_grad` or by numpy, or turned into a number
        by `item()`. In a training run also a term whose gradient reaches parameters of another
        optimizer alone, which does not step after this backward: a generator's adversarial loss
        that is computed on `fake.detach()`, or one of a pretrained network's features of it. Or a
        term that reaches no parameter but an input: an equation's residual whose second derivative
        was taken without `create_graph`. And a term of a teacher alone, such as a distillation loss
        whose two arguments both come from it.

    Why it matters:
        The loss shows the term, and its value may even fall by chance. It has no influence on the
        training: the penalty or the second task is not trained.

    How it is measured:
        The sums between the loss and its terms are those operations that only weights, means and
        further sums separate from it. A term that is detached may also be added for each example,
        before their mean, such as a log-determinant to a log-likelihood. A term without a gradient
        enters such a sum after a cut, and was computed from parameters that the step trains. If
        several cuts make a term a constant, the finding is at the last of them. What a cut returns
        may also serve as an index, as the choices of a router do. Nothing is measured in numbers,
        so there is no threshold. A number that was read by `item()` is recognized by its value, or
        by the sum of all numbers of the line, times a weight of at most three digits; one of numpy
        by the function call, which read arrays from tensors before. A term with a gradient is
        reported if none of the parameters behind it is updated by the steps after any captured
        backward of this line, an optimizer holds some of them, and another term of the sum trains;
        where a cut keeps it from them, only backwards with the same cuts count, and the parameters
        may be in no optimizer if none of them moves. A term without a gradient that is added also
        counts if it was computed under `no_grad` by layers of a network that these steps do not
        update, and nothing else in the loss uses that network or its output.

    How to fix it:
        `autograd.grad(…, create_graph=True)`; add the tensor itself, and detach only the copy that
        is logged.

    When it may be wrong:
        If the constant is only meant to correct the value of the loss. The rule skips a constant
        that contains the other term, as in `surrogate + (loss - surrogate).detach()`, and one
        computed from a detached target that the loss also uses elsewhere, such as the entropy in a
        divergence.

    Source:
        torch documentation, `torch.autograd.grad`: without `create_graph` its result is a constant;
        Gulrajani et al. 2017, "Improved Training of Wasserstein GANs" (arXiv 1704.00028).
        Measured: 6 of 6 sick losses of the tests, and none of 13 healthy ones, which correct the
        value of the loss, weigh a term by a constant, or subtract the entropy of a target.
    """

    code: ClassVar[str] = "GS704"
    name: ClassVar[str] = "loss-term-without-gradient"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("path cuts"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every term without a gradient."""
        sums = sums_of_loss(context)
        of_examples = sums_of_examples(context)
        found: dict[int, list[tuple[PathCutRecord, tuple[int, ...]]]] = {}
        for cut, parameters in path_cuts(context):
            # What is detached was made with a gradient. Under no_grad, a number per example may be
            # a reward or a target.
            known = {**sums, **of_examples} if cut.kind == "detach" else sums
            joins = [node for node in cut.joins if not _only_indexes(context, cut, node)]
            entered = [node for node in (*joins, *cut.read_into) if node in known]
            # A result that goes elsewhere as well, as into a layer, is more than a term.
            if entered and len(entered) == len(joins) + len(cut.read_into):
                # A constant that holds the other term changes the value of the loss alone, on
                # purpose.
                terms = [node for node in entered if not self._corrects(context, cut, node)]
                if terms:
                    found.setdefault(terms[0], []).append((cut, parameters))
        for term, cuts in found.items():
            yield self._finding(context, cuts, term)
        if context.run is not None and context.run.is_stepped:
            yield from self._of_strangers(context, context.run, sums)
            yield from self._of_other_networks(context, context.run, sums)

    def _of_strangers(
        self, context: RuleContext, run: Surroundings, sums: Mapping[int, NodeRecord]
    ) -> Iterator[Finding]:
        """Yield a finding for every term that only reaches what another optimizer steps."""
        terms = {ref.node: one for one in sums for ref in context.successors.get(one, ())}
        behind = {one: parameters_behind(context, one) for one in terms if one not in sums}
        if not any(one & run.stepped for one in behind.values()):
            return
        # Many terms of one sum, such as those of a list of outputs, are behind one cut.
        found: dict[object, list[tuple[int, frozenset[int], PathCutRecord | None]]] = {}
        for term, parameters in behind.items():
            cut = self._cut_off(context, run, term)
            # Turns of several optimizers may share this line, but not the cut.
            at_other_times = run.stepped_ever if cut is None else run.stepped_alike
            is_of_inputs = cut is not None and not parameters
            # A pretrained network that extracts features is mostly in no optimizer.
            is_idle = cut is not None and parameters and parameters <= run.unmoved
            is_of_strangers = not parameters & (run.stepped | at_other_times)
            if is_of_inputs or (is_of_strangers and (parameters & run.held or is_idle)):
                place = term if cut is None or cut.site is None else (cut.site, bool(parameters))
                found.setdefault(place, []).append((term, parameters, cut))
        for alike in found.values():
            reached = frozenset[int]().union(*(parameters for _, parameters, _ in alike))
            lines = dict.fromkeys(context.recording.nodes[term].site for term, _, _ in alike)
            yield self._of_strange_terms(context, len(alike), reached, alike[0][2], tuple(lines))

    @staticmethod
    def _cut_off(context: RuleContext, run: Surroundings, term: int) -> PathCutRecord | None:
        """Return the cut that keeps a term from what the step updates, None without one."""
        inner = {node.index for node in nodes_behind(context, term)}
        return next(
            (
                one
                for one, lost in path_cuts(context)
                if inner.intersection(one.joins) and run.stepped.intersection(lost)
            ),
            None,
        )

    def _of_strange_terms(
        self,
        context: RuleContext,
        terms: int,
        parameters: frozenset[int],
        cut: PathCutRecord | None,
        lines: Sequence[int | None],
    ) -> Finding:
        told = (
            ""
            if cut is None
            else f": {call_of(cut)} cuts it off" + " from those" * bool(parameters)
        )
        which = "a term of the loss trains" if terms == 1 else f"{terms} terms of the loss train"
        owner = "its" if terms == 1 else "their"
        return self.finding(
            context,
            message=(
                f"{which} nothing: {owner} gradient reaches "
                + (
                    f"{counted(len(parameters), 'parameter')}, and the step after it updates others"
                    if parameters
                    else "no parameter, only an input"
                )
                + (told if terms == 1 else told.replace("cuts it off", "cuts them off"))
            ),
            remedy=_remedy(cut)
            if cut is not None
            else "compute this term from the parameters that this optimizer steps",
            site=lines[0] if cut is None else cut.site,
            related=[context.related(one, "the term") for one in lines] if cut is not None else (),
            parameters=sorted(parameters),
            evidence={"terms": terms, "parameters_reached": len(parameters), "updated": 0},
            count=max(1, len(parameters)),
        )

    def _of_other_networks(
        self, context: RuleContext, run: Surroundings, sums: Mapping[int, NodeRecord]
    ) -> Iterator[Finding]:
        """Yield a finding for every added term of a network that this backward does not train."""
        elsewhere = run.stepped | run.stepped_ever | context.parameter_nodes.keys()
        if not run.stepped & context.parameter_nodes.keys():
            return
        for cut in context.recording.evidence_of(PathCutRecord):
            is_of_network = cut.kind == "no-grad" and set(cut.layer_joins) == set(cut.joins)
            is_added = all(
                node in sums
                and sums[node].operation == "AddBackward0"
                # A constant summand has no edge, so that the other one is the only input.
                and len(context.successors.get(node, ())) == 1
                for node in cut.joins
            )
            if not (cut.joins and is_of_network and is_added) or cut.read_into:
                continue
            if elsewhere.isdisjoint(cut.parameters):
                yield self._of_another_network(context, cut)

    def _of_another_network(self, context: RuleContext, cut: PathCutRecord) -> Finding:
        total = context.recording.nodes[cut.joins[0]]
        return self.finding(
            context,
            message=(
                "a term of the loss trains nothing: it was computed from "
                f"{' and '.join(positions(context, cut.parameters)[:3])} alone, without a gradient"
            ),
            remedy="compute this term from the output of what this optimizer steps, too",
            site=total.site,
            related=(
                context.related(cut.site if cut.site != total.site else None, "computed here"),
            ),
            parameters=cut.parameters,
            evidence={"operation": cut.operation, "parameters_behind": len(cut.parameters)},
            count=len(cut.parameters),
        )

    @staticmethod
    def _corrects(context: RuleContext, cut: PathCutRecord, node: int) -> bool:
        """Return whether a constant contains the term that it is added to."""
        others = set(context.successors.get(node, ()))
        return not others.isdisjoint(cut.origins)

    def _finding(
        self,
        context: RuleContext,
        cuts: Sequence[tuple[PathCutRecord, tuple[int, ...]]],
        term: int,
    ) -> Finding:
        """Return the finding for a term, at the last of the cuts that make it a constant."""
        total = context.recording.nodes[term]
        cut = cuts[-1][0]
        parameters = sorted({index for _, behind in cuts for index in behind})
        sites = dict.fromkeys(one.site for one, _ in cuts if one.site != cut.site)
        is_derivative = cut.operation == _DERIVATIVE
        return self.finding(
            context,
            message=f"a term of the loss has no gradient: {call_of(cut)} makes it a constant",
            remedy=_CREATE_GRAPH
            if is_derivative
            else "add the term itself to the loss, and detach only what is logged",
            site=cut.site if cut.site is not None else total.site,
            related=(
                context.related(total.site, "it is added to the loss here")
                if total.site != cut.site
                else None,
                *(context.related(one, "another part of it is cut off here") for one in sites),
            ),
            parameters=parameters,
            evidence={"operation": cut.operation, "parameters_behind": len(parameters)},
            count=len(parameters),
        )


def _remedy(cut: PathCutRecord) -> str:
    if cut.operation == _DERIVATIVE:
        return _CREATE_GRAPH
    return "compute this term on the tensor itself, without detach"


def _only_indexes(context: RuleContext, cut: PathCutRecord, node: int) -> bool:
    """Return whether an operation takes what carries its gradient by indices from behind a cut."""
    is_indexing = context.recording.nodes[node].operation.startswith(_INDEXING)
    return cut.kind == "non-differentiable" and is_indexing
