"""GS709: targets of a language model that are shifted twice."""

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
