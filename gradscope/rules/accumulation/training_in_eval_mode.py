"""GS312: models that are trained in eval mode."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, ModeEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule, related_line
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInEvalMode(Rule):
    """Dropout or batch norm are in eval mode while the model is trained.

    What it finds:
        A `model.eval()` before an evaluation without a `model.train()` after it, or with
        `model.training = True`, which leaves its layers in eval mode. And models that are loaded in
        eval mode, such as pretrained ones.

    Why it matters:
        Dropout is off, which removes regularisation. Batch norm uses its running statistics and no
        longer updates them. Training continues, with worse results.

    How it is measured:
        A step counts if the model has layers that depend on the mode, or a method that calls a
        dropout function and reads `self.training`, and was in eval mode in the forward of every
        backward pass that feeds it. The rule reports at least `share` of the optimizer's steps. It
        skips single layers in eval mode within a model in train mode, and models without a
        parameter in an optimizer.

    How to fix it:
        Call `model.train()` at the start of every epoch, or right after each evaluation.

    Fix safety:
        Safe. `model.train()` is inserted before the loop over batches, or at its start if the loop
        itself evaluates the model.

    When it may be wrong:
        Intended fine-tuning with frozen batch-norm statistics and without dropout.

    Source:
        torch documentation, `torch.nn.Module.eval`; pytorch/tutorials issue 1624.
    """

    code: ClassVar[str] = "GS312"
    name: ClassVar[str] = "training-in-eval-mode"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.loop", line=related_line)

    share: float = 0.5
    """Share of the optimizer's steps, 0 to 1. Chosen: without `train()` after the evaluation at the
    end of each epoch, the share is 0.5 after two epochs."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every model that is trained in eval mode."""
        windows = context.shared(Windows)
        modes = _modes_of_passes(windows)
        for model in dict.fromkeys(name for found in modes.values() for name in found):
            for series in windows.series:
                finding = self._finding_of(context, model, series, modes)
                if finding is not None:
                    yield finding
                    break  # one for each model

    def _finding_of(
        self,
        context: RuleContext,
        model: str,
        series: Series,
        modes: Mapping[int, Mapping[str, ModeEvent]],
    ) -> Finding | None:
        names = {index: context.recording.parameters[index].name for index in series.parameters}
        # A frozen teacher or the feature network of a perceptual loss belongs in eval mode.
        trained = [index for index, name in names.items() if name.startswith(f"{model}.")]
        judged = [window for window in series.windows if window.passes]
        sick = [window for window in judged if _is_eval(window, model, modes)]
        context.measured_share(
            self.code,
            "share_of_steps",
            steps_of(sick),
            steps_of(judged),
            self.share,
            subject=model,
        )
        if not trained or steps_of(sick) < 2 or steps_of(sick) < self.share * steps_of(judged):
            return None
        first = sick[0]
        mode = modes[first.passes[-1].position][model]
        layers = _layers(mode)
        steps, of = steps_of(sick), steps_of(judged)
        since = "" if steps == of else f", from step {first.step.step + 1} on"
        return self.finding(
            context,
            message=(
                f"{model} is trained in eval mode in {steps:,} of {of:,} steps{since}: {layers}"
            ),
            remedy=f"call {model}.train() before training, and again after each evaluation",
            site=mode.site,
            related=(
                context.related(first.passes[-1].site, "the backward of the first such step"),
            ),
            parameters=trained,
            modules=(model,),
            evidence={
                "steps_in_eval_mode": steps_of(sick),
                "steps": steps_of(judged),
                "share_limit": self.share,
                "dropout_layers": mode.dropout,
                "batch_norm_layers": mode.batchnorm,
            },
            count=steps_of(sick),
            step=first.step.step,
        )


def _modes_of_passes(windows: Windows) -> dict[int, dict[str, ModeEvent]]:
    """Return, by index of a backward, the models that its forward called in eval mode."""
    found: dict[int, dict[str, ModeEvent]] = {}
    pending: dict[str, ModeEvent] = {}
    for event in windows.events:
        # A model without such layers does the same in both modes.
        if isinstance(event, ModeEvent) and (event.dropout or event.batchnorm):
            pending[event.subject] = event
        # Events of the mode precede the backward of their forward, so what waits here belongs to
        # this one and to no later pass.
        elif isinstance(event, BackwardEvent):
            found[event.position] = pending
            pending = {}
    return found


def _is_eval(window: Window, model: str, modes: Mapping[int, Mapping[str, ModeEvent]]) -> bool:
    return all(model in modes.get(one.position, {}) for one in window.passes)


def _layers(mode: ModeEvent) -> str:
    parts = []
    if mode.dropout:
        parts.append("dropout is off")
    if mode.batchnorm:
        parts.append("batch norm does not update its statistics")
    return " and ".join(parts)
