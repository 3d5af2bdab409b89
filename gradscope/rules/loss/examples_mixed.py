"""GS707: outputs of one example that depend on another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.evidence.batches import MixedExamplesRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_RESHAPING = frozenset({"reshape", "reshape_as", "unflatten", "view", "view_as"})

_NORMALISING = frozenset({"log_softmax", "normalize", "softmax", "softmin"})

_SEQUENTIAL = frozenset(
    {"gru", "lstm", "multi_head_attention_forward", "rnn_relu", "rnn_tanh"}
    | {"scaled_dot_product_attention"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesMixed(Rule):
    """The output for one example depends on the other examples of the batch.

    What it finds:
        A `view` or `reshape` where a `transpose` or `permute` was meant; a softmax or a
        normalisation over the dimension of the examples; a recurrent layer or an attention that
        takes the examples for time steps, because `batch_first=True` is missing.

    Why it matters:
        Shapes fit, and the loss falls somewhat. The model learns from an example what belongs to
        another, and at inference its answer depends on what else is in the batch.

    How it is measured:
        The forward runs twice with the same random numbers, the second time with one example
        replaced by a copy of another, and batch normalisation in eval mode. Of all results in their
        order the first is found that differs where it belongs to another example. It is reported
        if a reshaping, a normalising, a recurrent or an attention function made it; all but the
        first only within a model that returns something for each example. What is mixed by
        anything else, as a similarity matrix, statistics of the batch, a permutation or a graph's
        edges, is taken to be meant. A change is a relative difference above 1e-4.

    How to fix it:
        `transpose` or `permute` in place of `view`; the right `dim`; `batch_first=True`.

    When it may be wrong:
        Where examples are meant to attend to each other; or where what looks like the dimension of
        the examples is that of time.

    Source:
        torch documentation, `Tensor.view` and `torch.nn.LSTM`; Karpathy, "A Recipe for Training
        Neural Networks", "use backprop to chart dependencies".
        Measured: 8 of 8 such models of the tests, and none of 14 healthy ones, of which 5 let
        examples depend on each other on purpose.
    """

    code: ClassVar[str] = "GS707"
    name: ClassVar[str] = "examples-mixed"
    level: ClassVar[Severity] = "error"

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return context.probe_skip_reason("mixed examples")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the operation that mixes examples."""
        for record in context.recording.evidence_of(MixedExamplesRecord):
            if _is_mistake(record):
                yield self._finding(context, record)

    def _finding(self, context: RuleContext, record: MixedExamplesRecord) -> Finding:
        what, remedy = _words(record)
        return self.finding(
            context,
            message=f"{what}: the result for one example depends on the other {record.rows - 1}",
            remedy=remedy,
            site=record.site,
            evidence={"operation": record.operation, "examples": record.rows},
            count=record.rows,
        )


def _is_mistake(record: MixedExamplesRecord) -> bool:
    if record.operation in _RESHAPING:
        return True
    if not (record.in_model and record.is_per_example):
        return False
    if record.operation in _NORMALISING:
        return True
    is_batch = len(record.dims) > 2 and record.dims[1] > 1
    return record.operation in _SEQUENTIAL and is_batch and not record.is_ambiguous


def _words(record: MixedExamplesRecord) -> tuple[str, str]:
    """Return what an operation does, and what to do about it."""
    name = f"{record.operation}()"
    if record.operation in _RESHAPING:
        return f"{name} mixes examples", "use transpose() or permute() to swap dimensions"
    if record.operation in _NORMALISING:
        return (
            f"{name} runs over the examples of the batch",
            "give it the dimension of the features, such as dim=-1",
        )
    return f"{name} takes the examples for time steps", "build the layer with batch_first=True"
