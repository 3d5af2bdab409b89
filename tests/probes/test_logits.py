"""Attention scores of fused kernels, against those that an explicit softmax is given."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.probes.forward.logits import LogitWatch
from gradscope.probes.forward.operations import NodeNumber, Operation

NUMBER = NodeNumber(1, 0)


def measured(name, args, kwargs, output):
    watch = LogitWatch()
    operation = Operation(name, args, kwargs, (output,), is_view=False)
    watch.see(operation, output, NUMBER)
    return watch._logits, watch._choices


def explicit(query, key, mask=None):
    """Return the largest magnitude by head of scores `[batch, heads, queries, keys]`."""
    scores = query.double() @ key.double().transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, 0.0)
    return scores.abs().amax(dim=(0, 2, 3)).tolist()


@pytest.mark.parametrize("masking", ["none", "causal", "boolean", "added"])
def test_scores_of_fused_attention_are_those_of_the_formula(masking):
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 4, 7, 8) for _ in range(3))
    lower = torch.ones(7, 7, dtype=torch.bool).tril()
    added = torch.zeros(7, 7).masked_fill(~lower, -math.inf)
    kwargs, mask = {
        "none": ({}, None),
        "causal": ({"is_causal": True}, lower),
        "boolean": ({"attn_mask": lower}, lower),
        "added": ({"attn_mask": added}, lower),
    }[masking]
    output = functional.scaled_dot_product_attention(query, key, value, **kwargs)
    ((found,), _) = measured("scaled_dot_product_attention", (query, key, value), kwargs, output)
    assert found.largest == pytest.approx(explicit(query, key, mask), rel=1e-5)


def test_query_heads_that_share_keys_have_scores_of_their_own():
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    output = torch.randn(2, 4, 5, 8)
    ((found,), _) = measured("scaled_dot_product_attention", (query, key, key), {}, output)
    assert found.largest == pytest.approx(
        explicit(query, key.repeat_interleave(2, dim=1)), rel=1e-5
    )


def test_scores_of_a_layer_are_those_of_its_projections():
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2), torch.randn(5, 3, 8)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[:, 3:] = True
    args = (x, x, x, 8, 2, layer.in_proj_weight, layer.in_proj_bias)
    ((found,), _) = measured("multi_head_attention_forward", args, {"key_padding_mask": padding}, x)
    with torch.no_grad():
        projected = functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)
        query, key, _ = (
            part.unflatten(-1, (2, 4)).permute(1, 2, 0, 3) for part in projected.chunk(3, -1)
        )
    open_keys = (~padding)[:, None, None, :].expand(3, 2, 5, 5)
    assert found.largest == pytest.approx(explicit(query, key, open_keys), rel=1e-5)


def test_masked_scores_of_a_softmax_do_not_count():
    scores = torch.zeros(1, 2, 3, 3)
    scores[0, 0, 0, 0], scores[0, 1, :, 2] = 7.0, torch.finfo(torch.float32).min
    ((found,), _) = measured("softmax", (scores, -1), {}, scores.softmax(-1))
    assert found.largest == (7.0, 0.0)


def test_log_z_of_outputs_is_that_of_the_formula():
    torch.manual_seed(0)
    logits, target = torch.randn(6, 10), torch.randint(0, 10, (6,))
    loss = functional.cross_entropy(logits, target)
    ((found,), _) = measured("cross_entropy", (logits, target), {}, loss)
    expected = logits.double().exp().sum(-1).log().mean().item()
    assert found.log_normaliser == pytest.approx(expected, rel=1e-5)
    assert found.largest == (pytest.approx(logits.abs().max().item()),)


def test_choices_are_counted_by_expert():
    scores = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    (_, (found,)) = measured("topk", (scores, 1), {}, scores.topk(1, dim=-1).values)
    assert found.shares == pytest.approx((2 / 3, 0.0, 1 / 3))
    entropies = [-sum(p * math.log(p) for p in row) / math.log(3) for row in scores.tolist()]
    assert found.entropy == pytest.approx(sum(entropies) / 3, rel=1e-5)


def test_empty_and_single_values_are_left_out():
    empty = torch.zeros(0, 3)
    assert measured("softmax", (empty, -1), {}, empty) == ([], [])
    assert measured("topk", (torch.ones(1, 4), 2), {}, torch.ones(1, 2)) == ([], [])


def test_a_head_with_a_nan_has_no_largest_score():
    scores = torch.zeros(1, 3, 2, 2)
    scores[0, 0, 0, 0], scores[0, 1, 1, 0], scores[0, 2, 1, 1] = math.nan, math.inf, 2.0
    scores[..., 0, 1] = -math.inf
    ((found,), _) = measured("softmax", (scores, -1), {}, scores.softmax(-1))
    assert found.largest == pytest.approx((math.nan, math.inf, 2.0), nan_ok=True)
