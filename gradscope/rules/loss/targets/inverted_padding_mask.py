"""GS719: masks of attention that hide the tokens instead of the padding."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import InvertedMaskRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedPaddingMask(Rule):
    """A mask of attention hides all tokens, and leaves the padding visible.

    What it finds:
        A padding mask with True and False swapped, in `nn.MultiheadAttention` and the transformer
        layers of torch, in `scaled_dot_product_attention`, and in attention by hand that fills its
        scores with `masked_fill` or `where`.

    Why it matters:
        Attention then averages over the padding, which is the same for every example. Nothing
        fails, the loss falls a little, and the model hardly uses its input.

    How it is measured:
        The visible keys of each example are compared with the tokens that an embedding looks up.
        The rule reports a mask if all visible keys are the same token, this token begins or ends
        the sequences and is nowhere else, the sequences differ in length, and all other tokens, of
        at least three kinds, are hidden. Keys without a token, such as one for the class, may be
        visible or not. A mask is judged from 8 visible and 8 hidden keys on.

    How to fix it:
        Swap it. `key_padding_mask` of `nn.MultiheadAttention` and `src_key_padding_mask` are True
        where a key is ignored: `ids == PAD`. A boolean `attn_mask` of
        `scaled_dot_product_attention` is True where a key takes part: `ids != PAD`.

    When it may be wrong:
        If a model is to read nothing but the number of tokens at the end of each sequence.

    Source:
        torch documentation, `torch.nn.MultiheadAttention` on `key_padding_mask`, and
        `torch.nn.functional.scaled_dot_product_attention` on `attn_mask`: the two conventions are
        opposite.
    """

    code: ClassVar[str] = "GS719"
    name: ClassVar[str] = "inverted-padding-mask"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes such a mask."""
        found = dict[int | None, InvertedMaskRecord]()
        for record in context.recording.evidence_of(InvertedMaskRecord):
            found.setdefault(record.site, record)
        for record in found.values():
            yield self.finding(
                context,
                message=(
                    f"this mask hides all {record.hidden:,} tokens from attention, and leaves "
                    f"{record.visible:,} positions of padding (token {record.token}) visible: True "
                    "and False are swapped"
                ),
                remedy="swap the mask: `key_padding_mask` is True at padding, `attn_mask` of "
                "`scaled_dot_product_attention` at tokens",
                site=record.site,
                related=(
                    context.related(record.used, "the attention that uses it")
                    if record.used != record.site
                    else None,
                ),
                evidence={
                    "visible": record.visible,
                    "hidden": record.hidden,
                    "token": record.token,
                },
                count=record.hidden,
            )
