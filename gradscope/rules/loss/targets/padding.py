"""GS711 and GS719: padding in the mean of a loss, and masks that hide the tokens instead."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import InvertedMaskRecord
from gradscope.recording.evidence.forward import ComparisonRecord, PaddedMeanRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingInLoss(Rule):
    """The loss of a sequence model counts targets at padding.

    What it finds:
        A cross-entropy over all positions of a padded batch whose targets at the padding are not
        ignored: labels padded with 0 where `ignore_index` is -100, labels that are a copy of the
        tokens, or a tagger whose padding has the tag 0. So is a binary cross-entropy of one score
        for each position, other than of a matrix. The same in losses by hand: a mean or sum over
        the log-probabilities of all positions, or over a loss with `reduction="none"`. And a mean
        over all positions of terms that a mask has set to 0 at the padding.

    Why it matters:
        The mean is one over the padding, too. The more a batch is padded, the less its real
        positions count, and the loss looks good because padding is easy to predict.

    How it is measured:
        Padding is where the model's `attention_mask` is 0, or where the tokens that an embedding
        looks up end in its `padding_idx`, or begin with several of it. The targets of a
        cross-entropy over as many sequences and positions, or one position less, are compared with
        that. It is found if at least 16 targets at padding count, all of these are of the same
        class, this class has a weight, and their share of all targets that count is `share` or
        more. Losses with `reduction="none"` and log-probabilities that are picked, or summed over
        the classes, are followed to a sum or mean over positions: it counts padding if no term
        there is 0. If all terms there are 0, a mean is a note: it divides by the padding, too.

    How to fix it:
        Call `cross_entropy(…, ignore_index=PAD)`, or set the labels at padding to -100:
        `labels.masked_fill(attention_mask == 0, -100)`.

    When it may be wrong:
        If the model is meant to predict the padding: as the end of a sequence that is generated at
        a fixed length.

    Source:
        torch documentation, `torch.nn.CrossEntropyLoss`: targets that are `ignore_index` do not
        contribute. transformers documentation, "Glossary", on labels: -100 is ignored.
    """

    code: ClassVar[str] = "GS711"
    name: ClassVar[str] = "padding-in-loss"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "on"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    share: float = 0.1
    """Share of the targets that count, 0 to 1. Chosen: one end mark per sequence is less."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose loss counts padding."""
        by_line: dict[int | None, list[ComparisonRecord]] = {}
        for record in context.recording.evidence_of(ComparisonRecord):
            if record.targets and record.at_padding and record.reduction in ("mean", "sum"):
                by_line.setdefault(record.site, []).append(record)
        for site, found in by_line.items():
            targets = sum(one.targets or 0 for one in found)
            padded = sum(one.at_padding or 0 for one in found)
            share = padded / targets
            context.measured(self.code, "padding_share", share, self.share, site=site)
            if share < self.share:
                continue
            first = found[0]
            yield self.finding(
                context,
                message=(
                    f"{100 * share:.0f} % of the targets of {first.operation} are at padding: the "
                    f"loss trains class {first.padding_class} there, in {padded:,} of {targets:,} "
                    "positions"
                ),
                remedy=(
                    "leave the positions at padding out: scores[mask], targets[mask]"
                    if first.operation.startswith("binary")
                    else "set the targets at padding to -100, or pass ignore_index if no other "
                    f"target is {first.padding_class}"
                ),
                site=site,
                evidence={"padding_share": share, "limit": self.share, "targets": targets},
                count=padded,
            )
        yield from self._by_hand(context)

    def _by_hand(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every sum or mean over the positions that counts padding."""
        found: dict[int | None, PaddedMeanRecord] = {}
        for record in context.recording.evidence_of(PaddedMeanRecord):
            if record.operation == "mean" or not record.is_masked:
                found.setdefault(record.site, record)
        for site, one in found.items():
            share = one.at_padding / one.positions
            context.measured(self.code, "padding_share", share, self.share, site=site)
            if share < self.share:
                continue
            what = "divides by" if one.is_masked else "takes in"
            yield self.finding(
                context,
                message=(
                    f"this {one.operation} {what} all {one.positions:,} positions, and "
                    f"{100 * share:.0f} % of them are padding"
                ),
                remedy="multiply by the mask, and divide by its sum",
                site=site,
                severity="note" if one.is_masked else self.level,
                evidence={
                    "padding_share": share,
                    "limit": self.share,
                    "targets": one.positions,
                },
                count=one.at_padding,
            )


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
