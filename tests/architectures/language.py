"""Language models of transformers: decoders, encoders, encoder-decoders, recurrent ones."""

import torch
import transformers as tf
from torch import Tensor, nn

from tests.architectures.case import ArchitectureCase, Built

VOCABULARY = 64
TOKENS = (2, 12)

# One narrow shape under the names that most configurations use.
NARROW = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = NARROW | {"num_key_value_heads": 1}
ENCODER = NARROW | {"max_position_embeddings": 32}


def tokens() -> Tensor:
    return torch.randint(3, VOCABULARY, TOKENS)


def language_model(model: nn.Module) -> Built:
    """Predict every token, the second row padded."""
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, -4:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    return model, {"input_ids": ids, "attention_mask": mask, "labels": labels}


def unmasked_language_model(model: nn.Module) -> Built:
    ids = tokens()
    return model, {"input_ids": ids, "labels": ids}


def classifier(model: nn.Module) -> Built:
    return model, {"input_ids": tokens(), "labels": torch.tensor([0, 1])}


def gpt2() -> Built:
    config = tf.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return language_model(tf.GPT2LMHeadModel(config))


def llama() -> Built:
    return language_model(tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)))


def mistral() -> Built:
    config = tf.MistralConfig(**GROUPED, sliding_window=6)
    return language_model(tf.MistralForCausalLM(config))


def qwen2() -> Built:
    return language_model(tf.Qwen2ForCausalLM(tf.Qwen2Config(**GROUPED)))


def qwen3() -> Built:
    return language_model(tf.Qwen3ForCausalLM(tf.Qwen3Config(**GROUPED, head_dim=8)))


def gemma2() -> Built:
    config = tf.Gemma2Config(**GROUPED, head_dim=8, sliding_window=6)
    return language_model(tf.Gemma2ForCausalLM(config))


def opt() -> Built:
    config = tf.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=16, ffn_dim=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, word_embed_proj_dim=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return language_model(tf.OPTForCausalLM(config))


def gpt_neox() -> Built:
    return language_model(tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**ENCODER)))


def bloom() -> Built:
    config = tf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=16, n_layer=2, n_head=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return language_model(tf.BloomForCausalLM(config))


def phi() -> Built:
    return language_model(tf.PhiForCausalLM(tf.PhiConfig(**GROUPED)))


def falcon() -> Built:
    config = tf.FalconConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return language_model(tf.FalconForCausalLM(config))


def mpt() -> Built:
    config = tf.MptConfig(
        vocab_size=VOCABULARY, d_model=16, n_heads=2, n_layers=2, max_seq_len=32,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return language_model(tf.MptForCausalLM(config))


def mixtral() -> Built:
    config = tf.MixtralConfig(
        **GROUPED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True
    )
    return language_model(tf.MixtralForCausalLM(config))


def deepseek_v3() -> Built:
    config = tf.DeepseekV3Config(
        **NARROW, num_key_value_heads=2, moe_intermediate_size=16, n_routed_experts=4,
        num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1,
        kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8,
    )  # fmt: skip
    return language_model(tf.DeepseekV3ForCausalLM(config))


def mamba() -> Built:
    config = tf.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, use_mambapy=False,
    )  # fmt: skip
    return unmasked_language_model(tf.MambaForCausalLM(config))


def rwkv() -> Built:
    config = tf.RwkvConfig(
        vocab_size=VOCABULARY, context_length=32, hidden_size=16, num_hidden_layers=2,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return unmasked_language_model(tf.RwkvForCausalLM(config))


def bert() -> Built:
    return language_model(tf.BertForMaskedLM(tf.BertConfig(**ENCODER)))


def roberta() -> Built:
    config = tf.RobertaConfig(**ENCODER, type_vocab_size=1)
    return classifier(tf.RobertaForSequenceClassification(config))


def distilbert() -> Built:
    config = tf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=16, hidden_dim=32, n_layers=2, n_heads=2,
        max_position_embeddings=32,
    )  # fmt: skip
    return classifier(tf.DistilBertForSequenceClassification(config))


def albert() -> Built:
    """One layer's parameters, called in every layer."""
    return language_model(tf.AlbertForMaskedLM(tf.AlbertConfig(**ENCODER, embedding_size=8)))


def electra() -> Built:
    model = tf.ElectraForPreTraining(tf.ElectraConfig(**ENCODER, embedding_size=8))
    return model, {"input_ids": tokens(), "labels": torch.randint(0, 2, TOKENS)}


def deberta_v2() -> Built:
    config = tf.DebertaV2Config(
        **ENCODER, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"],
        share_att_key=True, norm_rel_ebd="layer_norm",
    )  # fmt: skip
    return language_model(tf.DebertaV2ForMaskedLM(config))


def xlnet() -> Built:
    config = tf.XLNetConfig(vocab_size=VOCABULARY, d_model=16, n_layer=2, n_head=2, d_inner=32)
    return classifier(tf.XLNetForSequenceClassification(config))


def t5() -> Built:
    config = tf.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        pad_token_id=0, eos_token_id=2, decoder_start_token_id=0,
    )  # fmt: skip
    return language_model(tf.T5ForConditionalGeneration(config))


def switch_transformers() -> Built:
    config = tf.SwitchTransformersConfig(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_heads=2, num_experts=4,
        expert_capacity=8, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0,
    )  # fmt: skip
    return language_model(tf.SwitchTransformersForConditionalGeneration(config))


TWO_SIDED = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def bart() -> Built:
    config = tf.BartConfig(**TWO_SIDED, forced_eos_token_id=2)
    return language_model(tf.BartForConditionalGeneration(config))


def m2m_100() -> Built:
    """Layer drop leaves whole layers without gradients."""
    config = tf.M2M100Config(**TWO_SIDED, encoder_layerdrop=0.5, decoder_layerdrop=0.5)
    return language_model(tf.M2M100ForConditionalGeneration(config))


LANGUAGE = tuple(
    ArchitectureCase(name=build.__name__, build=build)
    for build in (
        gpt2, llama, mistral, qwen2, qwen3, gemma2, opt, gpt_neox, bloom, phi, falcon, mpt,
        mixtral, deepseek_v3, mamba, rwkv, bert, roberta, distilbert, albert, electra, deberta_v2,
        xlnet, t5, switch_transformers, bart, m2m_100,
    )
)  # fmt: skip
