"""GS124: encodings of positions that are added along the examples of a batch."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import PositionRowRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsByExample(Rule):
    """Each example of the batch gets an encoding, and all of its positions the same.

    What it finds:
        `x + self.pe[: x.size(0)]` with a table of shape [positions, 1, features], as in many
        tutorials, where the examples come first: `x` is [examples, positions, features], for
        layers with `batch_first=True`.

    Why it matters:
        The model does not know the order of its tokens. Instead, an example's place in the batch
        changes its output, so that shuffling the batch does. Shapes fit, and the loss falls.

    How it is measured:
        A part of a constant table, of shape [n, 1, features], is added to states of shape
        [n, m, features]. The next attention runs along the second dimension, of m positions. It is
        not judged where n and m are equal.

    How to fix it:
        `x + self.pe[: x.size(1)].transpose(0, 1)`, or keep the table as [1, positions, features]
        and add `self.pe[:, : x.size(1)]`.

    When it may be wrong:
        If the table holds a learned offset for each place of the batch.

    Source:
        PyTorch's tutorial on `nn.Transformer`, whose `PositionalEncoding` expects
        [positions, examples, features]. torch documentation, `TransformerEncoderLayer`,
        `batch_first`.
    """

    code: ClassVar[str] = "GS124"
    name: ClassVar[str] = "positions-by-example"
    level: ClassVar[Severity] = "error"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a sum."""
        found = dict[int | None, PositionRowRecord]()
        for record in context.recording.evidence_of(PositionRowRecord):
            found.setdefault(record.site, record)
        for record in found.values():
            yield self.finding(
                context,
                message=(
                    f"the encoding of positions runs along the {record.examples} examples of the "
                    f"batch, and is the same for the {record.positions} positions of each"
                ),
                remedy=(
                    "take as many rows as there are positions, `x.size(1)`, and put them along "
                    "the second dimension: [1, positions, features]"
                ),
                site=record.site,
                evidence={"examples": record.examples, "positions": record.positions},
            )
