"""GS310: batch norm over micro-batches."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, by_line
from gradscope.rules.helpers.leftovers import Accumulation, accumulations
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatisticsInAccumulation(Rule):
    """Batch norm makes accumulated micro-batches differ from one large batch.

    What it finds:
        Gradient accumulation over a model with batch-norm layers in training mode.

    Why it matters:
        Each micro-batch is normalised by its own mean and variance, so the sum of its gradients is
        not the gradient of the whole batch, and running statistics are those of micro-batches. With
        small ones they are noisy.

    How it is measured:
        Most steps of an optimizer are fed by several backward passes of one line, and the model
        has batch-norm layers in training mode. There is no threshold.

    How to fix it:
        Nothing if micro-batches are large. Otherwise use group or layer norm, or freeze the
        statistics.

    When it may be wrong:
        The finding states a fact that is rarely a mistake.

    Source:
        Measured: with 8 micro-batches the accumulated gradient has a cosine of 0.41 with the one of
        the whole batch, although the accumulation is right.
    """

    code: ClassVar[str] = "GS310"
    name: ClassVar[str] = "batch-statistics-in-accumulation"
    level: ClassVar[Severity] = "note"
    argument: ClassVar[ArgumentKind | None] = "accumulation"
    needs_run: ClassVar[bool] = True

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that accumulates over batch norm."""
        all_layers = [
            module
            for module in context.recording.modules
            # A layer in eval mode normalises by running statistics, which do not depend on the
            # micro-batch.
            if "BatchNorm" in module.class_name and module.training
        ]
        found = context.shared(accumulations) if all_layers else ()
        # Another model of the script, such as a frozen teacher or the discriminator of a GAN, may
        # have the batch norm and take no part in the accumulation.
        layers_of = {one.series.optimizers: _layers_of(context, one, all_layers) for one in found}
        affected = [
            AffectedWindows(series=one.series, windows=one.windows, judged=one.series.step_count)
            for one in found
            if layers_of[one.series.optimizers]
        ]
        for group in by_line(affected, lambda window: window.passes[-1].site):
            passes = next(one.passes for one in found if one.windows[0] in group.windows)
            rows = group.first.passes[-1].rows
            layers = layers_of[group.affected[0].series.optimizers]
            each = "" if rows is None else f" of {rows:,.0f} rows"
            yield self.finding(
                context,
                message=(
                    f"batch norm normalises each of {passes} micro-batches{each} separately: their "
                    "gradients do not add up to the gradient of the whole batch"
                ),
                remedy="keep micro-batches large, or use group norm or layer norm",
                site=group.site,
                modules=[module.path for module in layers],
                evidence={
                    "passes": passes,
                    "rows": rows,
                    "batch_norm_layers": len(layers),
                },
                count=len(layers),
                step=group.first.step.step,
            )


def _layers_of(
    context: RuleContext, accumulation: Accumulation, layers: Sequence[ModuleRecord]
) -> list[ModuleRecord]:
    """Return the layers in the models of which the optimizer holds parameters."""
    records = context.recording.parameters
    models = {_model_of(context, records[i].module) for i in accumulation.series.parameters}
    return [layer for layer in layers if _model_of(context, layer.index) in models]


def _model_of(context: RuleContext, module: int) -> int:
    parent = context.recording.modules[module].parent
    return module if parent is None else _model_of(context, parent)
