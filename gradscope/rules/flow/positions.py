"""GS124 and GS125: positions of sequences along the examples, or behind their padding."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.batches import PaddedReadRecord, PositionRowRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBehindPadding(Rule):
    """The model reads the last position of its sequences, which is padding in most of them.

    What it finds:
        `output[:, -1]` of a recurrent layer or a transformer whose sequences are padded at their
        ends, and the final states of a recurrent layer that gets them unpacked.

    Why it matters:
        The state of the last token has passed through all of the padding by then. Its gradient
        fades on the way back, and the output depends on how long the batch's longest sequence is.
        A transformer's output at a padding token is that of no token at all.

    How it is measured:
        Padding is the token that an embedding does not learn, `padding_idx`, or what the model's
        attention mask marks, if it ends the sequences. One position of every sequence is read, the
        last one, or a recurrent layer's final state. A loop that reads each position, too, is none.
        If at least half of the sequences end in padding, it is a note; a warning if `share` of all
        positions are padding, too.

    How to fix it:
        `pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)` before a
        recurrent layer, whose final states are then those of the last tokens; or
        `output[torch.arange(len(lengths)), lengths - 1]`.

    When it may be wrong:
        If sequences are reversed, or padding ends them on purpose.

    Source:
        torch documentation, `pack_padded_sequence`; transformers'
        `GPT2ForSequenceClassification`, which reads the last token that is no padding.
    """

    code: ClassVar[str] = "GS125"
    name: ClassVar[str] = "read-behind-padding"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "on"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_of_padding"),)
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    share: float = 0.25
    """Share of all positions, 0 to 1, that are padding, for a warning. Chosen."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a read."""
        found = dict[int | None, PaddedReadRecord]()
        for record in context.recording.evidence_of(PaddedReadRecord):
            if 2 * record.padded < record.sequences:
                continue
            if not context.users.get(record.result.node):
                continue  # the loss does not depend on it
            context.measured(
                self.code,
                "share_of_padding",
                record.share,
                self.share,
                site=context.site(record.site),
            )
            found.setdefault(record.site, record)
        for record in found.values():
            yield self.finding(
                context,
                message=(
                    f"the last position is read, but {record.padded} of {record.sequences} "
                    f"sequences end in padding: {short(100 * record.share, 2)} % of all positions"
                ),
                remedy=(
                    "read each sequence at its last token, `output[rows, lengths - 1]`, or pack "
                    "the sequences of a recurrent layer with `pack_padded_sequence`"
                ),
                site=record.site,
                severity="warning" if record.share >= self.share else "note",
                evidence={
                    "sequences": record.sequences,
                    "padded": record.padded,
                    "share_of_padding": record.share,
                    "limit": self.share,
                },
                count=record.padded,
            )
