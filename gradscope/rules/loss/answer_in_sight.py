"""GS709 and GS730: language models that see the answer, and targets that are shifted twice."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import SeenAnswerRecord
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_TWICE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerInSight(Rule):
    """A language model sees the tokens that its loss asks it for.

    What it finds:
        A loss of the next token over attention without a causal mask, over a bidirectional
        recurrent layer, or over a convolution that is padded on both sides. And targets that nobody
        has shifted: each one is the token at its own position, which the model gets as its input.

    Why it matters:
        The model learns to copy. The loss falls towards 0, on validation data too, but where text
        is generated the answer is not there, and the model has never learned to predict it.

    How it is measured:
        The integers that an embedding looks up, against the classes of a cross-entropy, or those
        that `gather` chooses from the model's output: each class that counts is the token one
        position later, or the token at its own position. Next tokens are in sight where attention
        over these tokens gives the next position any weight, by its mask or by its weights, or
        where a convolution that keeps their number has a weight for it; neither before nor behind
        the convolution, positions are moved. Tokens at their own position are reported only below
        attention or a recurrent layer that hides what follows, which is of use only to a model that
        predicts it. Keys and predictions have to be made of these tokens position by position: a
        bottleneck in between, as of an autoencoder, ends the search. The rule reports from 16
        targets on of which half are seen. It reports no model that gets the same text twice, as an
        encoder and a decoder do, while one of both hides what follows.

    How to fix it:
        `scaled_dot_product_attention(…, is_causal=True)`, a mask made by `torch.tril`,
        `bidirectional=False`, or padding of a convolution on the left alone. Unshifted targets:
        compare `logits[:, :-1]` with `labels[:, 1:]`.

    When it may be wrong:
        If the model is meant to reproduce its input, token by token.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: positions are masked "to
        prevent leftward information flow". transformers documentation, `labels` of causal language
        models.
    """

    code: ClassVar[str] = "GS730"
    name: ClassVar[str] = "answer-in-sight"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose targets the model sees."""
        found = dict[tuple[int | None, int], SeenAnswerRecord]()
        for record in context.recording.evidence_of(SeenAnswerRecord):
            if record.ahead <= 1:  # further ones are judged by another rule
                found.setdefault((record.site, record.ahead), record)
        for record in found.values():
            yield self._finding(context, record)

    def _finding(self, context: RuleContext, record: SeenAnswerRecord) -> Finding:
        looks_ahead = record.ahead == 1
        call = None if record.call is None else context.recording.calls[record.call]
        path = "" if call is None else context.recording.modules[call.module].path
        where = f"{path}" if path else "this line"
        # Losses by hand are recorded by the operation that reads the classes, which no reader takes
        # for a loss.
        loss = "the loss" if record.operation in ("gather", "mul") else record.operation
        mixed = context.related(record.mixer, "the layer that hides what follows")
        return self.finding(
            context,
            message=(
                f"the model sees the tokens that it is to predict: {record.seen:,} of "
                f"{record.targets:,} targets of {loss} are the next token, and {where} lets each "
                "position see the next one"
                if looks_ahead
                else f"the targets of {loss} are the model's input itself: each of "
                f"{record.targets:,} is the token at its own position, not the next one"
            ),
            remedy=(
                "hide what follows: `is_causal=True`, a mask of `torch.tril`, "
                "`bidirectional=False`, or padding of a convolution on the left alone"
                if looks_ahead
                else "shift the targets by one: compare `logits[:, :-1]` with `labels[:, 1:]`"
            ),
            # Without a mask, the attention is to be changed. With one, the model is right and its
            # targets are not.
            site=record.mixer if looks_ahead else record.site,
            related=(
                context.related(record.site, "the loss of the next token"),
                context.related(None if call is None else call.site, "called here"),
            )
            if looks_ahead
            else (mixed,),
            modules=(path,) if path and looks_ahead else (),
            evidence={"seen": record.seen, "targets": record.targets},
            count=record.seen,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsShiftedTwice(Rule):
    """The targets of a language model are shifted twice: it learns the token after the next.

    What it finds:
        Labels that the script shifts by one position, for a model that shifts its labels itself, as
        those of transformers do. And labels that a script cuts one position too late.

    Why it matters:
        No exception is raised and the loss falls, for the token after the next is predictable, too.
        But text is generated from predictions of the next token, which the model never learned.

    How it is measured:
        The integers that an embedding looks up, against the classes of a cross-entropy with as many
        sequences and positions: each class that is not ignored is the token two positions later,
        and none of the other shifts up to three fits. At the last position of every sequence
        nothing counts, which is what a loss that shifts by itself leaves there; or attention or a
        recurrent layer over these tokens hides what follows, as a model of the next token does. The
        rule does not report a step with another loss of the next token, as of a model that predicts
        several.

    How to fix it:
        Pass the tokens as labels, `labels=input_ids`, or compute the loss in the script.

    When it may be wrong:
        If the model is meant to predict the token after the next alone.

    Source:
        transformers documentation, `labels` of causal language models; huggingface/transformers
        issues 32944 and 47394, pull request 37830.
    """

    code: ClassVar[str] = "GS709"
    name: ClassVar[str] = "targets-shifted-twice"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose targets are too far ahead."""
        records = context.recording.evidence_of(ComparisonRecord)
        if any(record.ahead == 1 for record in records):
            return
        by_line: dict[int | None, list[ComparisonRecord | SeenAnswerRecord]] = {}
        judged: list[ComparisonRecord | SeenAnswerRecord] = [*records]
        judged += context.recording.evidence_of(SeenAnswerRecord)
        for one in judged:
            if one.ahead == _TWICE:
                by_line.setdefault(one.site, []).append(one)
        for site, found in by_line.items():
            by_model = isinstance(found[0], ComparisonRecord)
            yield self.finding(
                context,
                message=(
                    f"the targets of {found[0].operation} are the tokens two positions later: they "
                    "are shifted "
                    + ("once by the script and once by the model" if by_model else "twice")
                ),
                remedy=(
                    "pass the tokens themselves as labels: the model shifts them"
                    if by_model
                    else "take the tokens from one position later as labels"
                ),
                site=site,
                evidence={"positions_ahead": _TWICE, "positions_meant": 1},
                count=len(found),
            )
