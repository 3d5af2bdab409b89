"""Fine-tunes a language model on instructions: only the answer counts."""

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


def build_model():
    torch.manual_seed(97)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config)


def build_batch():
    torch.manual_seed(98)
    tokens = torch.randint(3, 320, (4, 40))
    prompt = torch.tensor([12, 20, 9, 16])
    length = torch.tensor([40, 36, 30, 38])
    position = torch.arange(40)
    padding = position >= length.unsqueeze(1)
    tokens = tokens.masked_fill(padding, 0)
    hidden = padding | (position < length.unsqueeze(1))
    labels = tokens.masked_fill(hidden, -100)
    return {"input_ids": tokens, "attention_mask": (~padding).long(), "labels": labels}


def loss_fn(output, batch):
    logits, labels = output.logits[:, :-1], batch["labels"][:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
