"""GS218: inputs without influence, and inputs that only seem to have none."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

G = torch.Generator().manual_seed(1)
X = torch.randn(12, 5, 4, generator=G)
PRESENT = torch.arange(5)[None] < torch.randint(2, 5, (12, 1), generator=G)
CLASSES = torch.arange(12) % 3


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(4, 3), nn.Embedding(3, 3)


class Unread(Base):
    def forward(self, x, condition):
        return self.layer(x).mean(1)


class Zeroed(Base):
    def forward(self, x, condition):
        return self.layer(x).mean(1) + 0.0 * condition.float().sum()


class Overwritten(Base):
    def forward(self, x, condition):
        condition = torch.zeros_like(condition)
        return self.layer(x).mean(1) + condition.float().mean(1, keepdim=True)


class MaskNotUsed(Base):
    def forward(self, x, attention_mask=None):
        return self.layer(x).mean(1)


def told(findings):
    return [finding.severity for finding in findings if finding.rule == "GS218"]


def loss(output, batch):
    return functional.cross_entropy(output, CLASSES)


def by_name(**tensors):
    return {"x": X, **tensors}


@pytest.mark.parametrize("kind", some_on_push([Unread, Zeroed, Overwritten], {0, 1}))
def test_an_input_without_influence_is_a_note(findings_of, kind):
    assert told(findings_of(kind(), by_name(condition=PRESENT), loss)) == ["note"]


def test_a_mask_without_influence_is_a_warning(findings_of):
    findings = findings_of(MaskNotUsed(), by_name(attention_mask=PRESENT), loss)
    assert told(findings) == ["warning"]


class Masked(Base):
    def forward(self, x, mask):
        weight = mask.unsqueeze(-1).float()
        return (self.layer(x) * weight).sum(1) / weight.sum(1)


class Optional(Base):
    def forward(self, x, labels=None, *, _unused=None):
        return self.layer(x).mean(1)


class Handed(Base):
    def forward(self, x, mask):
        return self.whole(**{name: v for name, v in locals().items() if name in ("x", "mask")})

    def whole(self, x, mask):
        return (self.layer(x) * mask.unsqueeze(-1)).sum(1)


@pytest.mark.parametrize("kind", [Masked, Handed])
def test_an_input_that_is_used_is_fine(findings_of, kind):
    assert not told(findings_of(kind(), by_name(mask=PRESENT), loss))


def test_a_target_that_only_the_loss_reads_is_fine(findings_of):
    def with_labels(output, batch):
        return functional.cross_entropy(output, batch["labels"])

    assert not told(findings_of(Optional(), by_name(labels=CLASSES), with_labels))


def test_examples_of_one_number_whose_order_does_not_count_are_fine(findings_of):
    class Edges(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, inside, edge):
            values = self.layer(inside).squeeze(1) * torch.arange(16.0)
            return values.mean() + self.layer.weight.sum() * edge.mean()

    whole = torch.arange(16.0).unsqueeze(1)  # their sum is exact in any order
    batch = {"inside": torch.randn(16, 1, generator=G), "edge": whole}
    assert not told(findings_of(Edges(), batch, lambda output, batch: output))


def test_a_mask_of_ones_is_near_but_cannot_be_judged(findings_of):
    ones = torch.ones(12, 5, dtype=torch.bool)
    assert not told(findings_of(MaskNotUsed(), by_name(attention_mask=ones), loss))


def test_a_loss_that_is_satisfied_tells_nothing(findings_of):
    def hinge(output, batch):
        return (output.mean() * 1e-9 - 1).clamp(min=0)

    assert not told(findings_of(Masked(), by_name(mask=PRESENT), hinge))


def test_a_layer_within_the_model_may_ignore_what_its_interface_asks_for(findings_of):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, mask):
            return self.linear(x)

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.last = nn.ModuleList([Block(), Block()]), Masked()

        def forward(self, x, mask):
            for block in self.blocks:
                x = block(x, mask)
            return self.last(x, mask)

    assert not told(findings_of(Stack(), by_name(mask=PRESENT), loss))


def test_random_numbers_hide_nothing(findings_of):
    class Dropped(Unread):
        def forward(self, x, condition):
            return functional.dropout(self.layer(x).mean(1) + condition[:, 2:])

    assert not told(findings_of(Dropped(), by_name(condition=PRESENT.float()), loss))


LENGTHS = torch.tensor([5, 3, 2, 4] * 3)
PADDED = torch.arange(5)[None] >= LENGTHS[:, None]
TOKENS = torch.randint(1, 9, (12, 5), generator=G).masked_fill(PADDED, 0)


class Padded(nn.Module):
    """Averages the states of an attention over the positions that are no padding."""

    def __init__(self, *, hands_on):
        super().__init__()
        torch.manual_seed(0)
        self.hands_on = hands_on
        self.embed = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def encoded(self, tokens, padding):
        states = self.embed(tokens)
        if self.hands_on:
            return self.encoder(states, src_key_padding_mask=padding)
        return self.encoder(states)

    def forward(self, tokens, padding):
        kept = (~padding.bool()).unsqueeze(-1).float()
        return self.head((self.encoded(tokens, padding) * kept).sum(1) / kept.sum(1))


class ReadToTheEnd(Padded):
    """Runs a convolution, which has no use for a mask."""

    def __init__(self):
        super().__init__(hands_on=False)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)

    def encoded(self, tokens, padding):
        return self.conv(self.embed(tokens).transpose(1, 2)).transpose(1, 2)


def padding_found(findings_of, model, tokens=TOKENS, padding=PADDED):
    batch = {"tokens": tokens, "padding": padding, "target": CLASSES}
    found = findings_of(
        model, batch, lambda output, batch: functional.cross_entropy(output, batch["target"])
    )
    return [one for one in found if one.rule == "GS218"]


def test_mask_that_is_not_handed_on_is_found_at_the_call(findings_of):
    (finding,) = padding_found(findings_of, Padded(hands_on=False))
    assert finding.severity == "warning"
    assert finding.location.source == "return self.encoder(states)"
    assert "src_key_padding_mask is not given" in finding.message


def test_padding_that_layers_without_a_mask_read_is_a_note(findings_of):
    (finding,) = padding_found(findings_of, ReadToTheEnd())
    assert (finding.severity, finding.location) == ("note", None)


@pytest.mark.parametrize(
    ("hands_on", "tokens", "padding"),
    some_on_push(
        [
            (True, TOKENS, PADDED),
            # Nothing is padded, and what is marked holds numbers like any others.
            (False, TOKENS.clamp(min=1), torch.zeros_like(PADDED)),
            (False, (TOKENS + torch.arange(5) % 2) % 9, PADDED),
            # Positions that a masked language model is to guess, in the middle of the rows.
            (False, TOKENS, (torch.arange(5) == 2).expand(12, 5)),
        ],
        {0, 1},
    ),
    ids=["handed-on", "no-padding", "no-constant", "in-the-middle"],
)
def test_padding_that_is_kept_out_and_masks_of_other_kinds_are_not_found(
    findings_of, hands_on, tokens, padding
):
    assert padding_found(findings_of, Padded(hands_on=hands_on), tokens, padding) == []


class OfPatches(nn.Module):
    """Classifies images by an attention over patches, which could take a mask."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 10)

    def attended(self, x):
        return self.attention(x, x, x, need_weights=False)[0]

    def forward(self, images):
        return self.head(self.attended(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


@pytest.mark.parametrize(
    "labels", some_on_push([[9, 4, 7, 2, 9, 3], [3, 3, 2, 3, 3, 3], [1, 3, 3, 2, 3, 3]], {0, 1})
)
def test_class_labels_beside_images_are_no_lengths(findings_of, labels):
    images = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    batch = (images, torch.tensor(labels))
    found = findings_of(
        OfPatches(), batch, lambda output, batch: functional.cross_entropy(output, batch[1])
    )
    assert not told(found)


class UnreadAndZeroed(Base):
    def forward(self, x, condition, scale):
        return self.layer(x).mean(1) + 0.0 * scale.float().sum()


def test_an_unread_parameter_does_not_hide_another_input_without_influence(findings_of):
    batch = by_name(condition=PRESENT, scale=torch.arange(12.0))
    findings = [one for one in findings_of(UnreadAndZeroed(), batch, loss) if one.rule == "GS218"]
    assert [dict(one.evidence)["input"] for one in findings] == ["condition", "batch['scale']"]
