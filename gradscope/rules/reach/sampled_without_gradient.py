"""GS217: samples through which no gradient goes."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import is_made_of, is_sample, path_cuts
from gradscope.rules.helpers.loss.flow import SUMS, is_averaged_into_loss
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_WEIGHTS = frozenset({"DotBackward0", "MulBackward0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledWithoutGradient(Rule):
    """A sample carries no gradient to the parameters of its distribution.

    What it finds:
        A `sample()`, `torch.normal(mean, std)`, or a detached `mean + std * noise`, whose result
        reaches the loss through a layer, while the parameters of its distribution get a gradient
        only from another term. Examples are the encoder of a variational autoencoder that learns
        only from the KL divergence, and an actor that learns only from its entropy.

    Why it matters:
        The loss falls because the decoder learns. The encoder gets no gradient from the
        reconstruction, and its codes become noise.

    How it is measured:
        The rule follows a draw from a continuous distribution to the operations that use it. It
        reports the draw if one of them is a layer whose parameters do not affect the draw, or if
        the result passes layers that need no gradient and is added to the log-probability in the
        loss. It does not report it if a value computed from the sample multiplies the
        log-probability, as in a policy gradient. `torch.normal` of tensors with a gradient has a
        derivative of zero. Nothing is measured in numbers, so there is no threshold.

    How to fix it:
        Draw with `rsample()`, or compute `mean + std * torch.randn_like(std)`.

    When it may be wrong:
        If the layer should learn from fixed samples, in one backward with another loss of the
        distribution, as in wake-sleep algorithms.

    Source:
        torch documentation, "Probability distributions", "Pathwise derivative"; Kingma and Welling
        2013 (arXiv 1312.6114); Haarnoja et al. 2018, "Soft Actor-Critic" (arXiv 1801.01290).
        Measured: 5 of 5 such models of the tests, and none of 7 healthy ones that draw samples.
    """

    code: ClassVar[str] = "GS217"
    name: ClassVar[str] = "sampled-without-gradient"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("path cuts"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that draws such a sample."""
        reported = set[int | None]()
        for cut, parameters in path_cuts(context):
            # Parameters that are used under no_grad are not meant to learn here.
            nodes = (context.recording.nodes[ref.node] for ref in cut.origins)
            is_reached = any(node.kind != "parameter" for node in nodes)
            if cut.site in reported or not is_reached or not is_sample(context, cut):
                continue
            use = _use(context, cut)
            if use is not None:
                reported.add(cut.site)
                yield self._finding(context, cut.site, parameters, use)
        yield from self._draws_in_graph(context)

    def _draws_in_graph(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every `torch.normal` whose derivative is zero."""
        reach = context.shared(Reach)
        wanted = reach.learning if context.run is None else context.run.stepped
        for node in context.first.nodes:
            if node.operation.startswith("NormalBackward"):
                parameters = context.parameters_behind([node.index])
                use = None if parameters.isdisjoint(wanted) else _layer_after(context, node)
                if use is not None:
                    concerned = tuple(sorted(parameters & wanted))
                    yield self._finding(context, node.site, concerned, use)

    def _finding(
        self, context: RuleContext, site: int | None, parameters: tuple[int, ...], use: NodeRecord
    ) -> Finding:
        stats = [context.parameter_stat(parameter) for parameter in parameters]
        learns = any(stat is not None and stat.reach == "gradient" for stat in stats)
        return self.finding(
            context,
            message=(
                f"the sample carries no gradient: {len(parameters)} parameters of its "
                f"distribution learn {'from other terms only' if learns else 'nothing'}"
            ),
            remedy=(
                "draw by rsample(), or as mean + std * torch.randn_like(std), and do not detach it"
            ),
            site=site,
            related=(context.related(use.site, "the sample is used here"),),
            parameters=parameters,
            evidence={"parameters_behind": len(parameters)},
            count=len(parameters),
        )


def _use(context: RuleContext, cut: PathCutRecord) -> NodeRecord | None:
    """Return the operation whose gradient the sample should carry, None if it need not."""
    nodes = context.recording.nodes
    of_density, found = set[int](), None
    for node in cut.joins:
        operands = context.successors.get(node, ())
        # What also depends on the parameters of the distribution is the density of the sample.
        if any(is_made_of(context, operand, cut.origins) for operand in operands):
            of_density.add(node)
        elif found is None and _has_other_parameters(context, node, cut.parameters):
            found = nodes[node]
    if _is_weighted(context, of_density):
        return None
    if found is None:
        sums = (nodes[n] for n in cut.layer_joins if n in of_density and nodes[n].operation in SUMS)
        found = next((one for one in sums if is_averaged_into_loss(context, one.index)), None)
    return found


def _is_weighted(context: RuleContext, of_density: set[int]) -> bool:
    """Return whether a density is multiplied by a detached value, as in a policy gradient."""
    density = [TensorRef(node=node, slot=0) for node in of_density]
    return any(
        node in of_density or is_made_of(context, operand, density)
        for cut in context.recording.evidence_of(PathCutRecord)
        for node in cut.joins
        if context.recording.nodes[node].operation in _WEIGHTS
        for operand in context.successors.get(node, ())
    )


def _has_other_parameters(context: RuleContext, node: int, behind: tuple[int, ...]) -> bool:
    """Return whether an operation uses a parameter that is not behind the draw."""
    reach = context.shared(Reach)
    weights = [ref.node for ref in context.successors.get(node, ()) if reach.is_parameter(ref.node)]
    return bool(weights) and context.parameters_behind(weights).isdisjoint(behind)


def _layer_after(context: RuleContext, draw: NodeRecord) -> NodeRecord | None:
    """Return the first operation after a draw with a parameter that is not behind it."""
    behind = tuple(context.parameters_behind([draw.index]))
    waiting, seen = [draw.index], {draw.index}
    while waiting:
        for user in context.users.get(waiting.pop(0), ()):
            if _has_other_parameters(context, user, behind):
                return context.recording.nodes[user]
            if user not in seen:
                seen.add(user)
                waiting.append(user)
    return None
