"""Models of transformers train bit-identically while captured."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.step_capture.models_to_train import outcome, same

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def tokens():
    return torch.randint(1, 60, (2, 12))


def trained(make, batch):
    def loop():
        model, losses = make().train(), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(3):
            loss = model(**batch()).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        return model, losses

    return loop


def own_words():
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=16, **SIZES)
    return transformers.GPT2LMHeadModel(config)


def gpt2_under_checkpoints():
    model = gpt2()
    model.activation_checkpointing_enable()
    return model


def bert():
    config = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        **SIZES,
    )
    return transformers.BertForSequenceClassification(config)


def t5():
    config = transformers.T5Config(
        num_layers=2,
        d_model=16,
        num_heads=2,
        d_kv=8,
        d_ff=32,
        decoder_start_token_id=0,
        **SIZES,
    )
    return transformers.T5ForConditionalGeneration(config)


LOOPS = {
    "gpt2": trained(gpt2, own_words),
    "gpt2 under checkpoints": trained(gpt2_under_checkpoints, own_words),
    "bert": trained(bert, lambda: {"input_ids": tokens(), "labels": torch.randint(0, 2, (2,))}),
    "t5": trained(t5, own_words),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", some_on_push(LOOPS, 8))
def test_a_training_is_the_same_to_the_last_bit(name, capture_steps):
    tensors, torch_state, _ = outcome(LOOPS[name])
    seen = []
    made = capture_steps(lambda: seen.append(outcome(LOOPS[name])))
    ((watched, watched_torch, _),) = seen
    assert all(map(same, tensors, watched))
    assert watched_torch == torch_state
    assert made.reasons == []
    assert made.steps == [0, 1, 2]
    assert all(one.recording.tensor_stats for one in made.captured_steps)
