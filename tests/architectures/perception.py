"""Models of transformers for images, sound, both with text, and time series."""

import torch
import transformers as tf
from torch import Tensor

from tests.architectures.case import ArchitectureCase, Built
from tests.architectures.language import ENCODER, TWO_SIDED, tokens

PATCHES = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
WAVES = {
    "vocab_size": 12,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "conv_dim": (8, 8),
    "conv_kernel": (5, 3),
    "conv_stride": (5, 2),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_length": 2,
    "ctc_loss_reduction": "mean",
    "ctc_zero_infinity": True,
}


def images(side: int = 16) -> Tensor:
    return torch.randn(2, 3, side, side)


def labelled(side: int = 16) -> dict[str, Tensor]:
    return {"pixel_values": images(side), "labels": torch.tensor([0, 1])}


def vit() -> Built:
    return tf.ViTForImageClassification(tf.ViTConfig(**PATCHES)), labelled()


def vit_mae() -> Built:
    """Random masking: the forward draws random numbers of its own."""
    config = tf.ViTMAEConfig(
        **PATCHES, decoder_hidden_size=16, decoder_intermediate_size=32,
        decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
    )  # fmt: skip
    return tf.ViTMAEForPreTraining(config), {"pixel_values": images()}


def deit() -> Built:
    return tf.DeiTForImageClassification(tf.DeiTConfig(**PATCHES)), labelled()


def swin() -> Built:
    config = tf.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[1, 2], window_size=4
    )
    return tf.SwinForImageClassification(config), labelled()


def convnext() -> Built:
    config = tf.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2)
    return tf.ConvNextForImageClassification(config), labelled()


def resnet() -> Built:
    config = tf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="bottleneck"
    )
    return tf.ResNetForImageClassification(config), labelled(32)


def segformer() -> Built:
    config = tf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
        patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
        decoder_hidden_size=16, num_labels=3,
    )  # fmt: skip
    labels = torch.randint(0, 3, (2, 32, 32))
    return tf.SegformerForSemanticSegmentation(config), {
        "pixel_values": images(32), "labels": labels,
    }  # fmt: skip


def clip() -> Built:
    config = tf.CLIPConfig(text_config=ENCODER, vision_config=PATCHES, projection_dim=8)
    batch = {"input_ids": tokens(), "pixel_values": images(), "return_loss": True}
    return tf.CLIPModel(config), batch


def vision_encoder_decoder() -> Built:
    encoder = tf.ViTConfig(**PATCHES)
    decoder = tf.BertConfig(**ENCODER, is_decoder=True, add_cross_attention=True)
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    batch = {"pixel_values": images(), "labels": tokens()}
    return tf.VisionEncoderDecoderModel(config), batch


def whisper() -> Built:
    config = tf.WhisperConfig(
        **{k: v for k, v in TWO_SIDED.items() if k != "max_position_embeddings"},
        num_mel_bins=8, max_source_positions=12, max_target_positions=32,
        begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    batch = {"input_features": torch.randn(2, 8, 24), "labels": tokens()}
    return tf.WhisperForConditionalGeneration(config), batch


def wav2vec2() -> Built:
    config = tf.Wav2Vec2Config(**WAVES)
    return tf.Wav2Vec2ForCTC(config), transcribed_speech()


def hubert() -> Built:
    return tf.HubertForCTC(tf.HubertConfig(**WAVES)), transcribed_speech()


def transcribed_speech() -> dict[str, Tensor]:
    return {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 12, (2, 5))}


def time_series_transformer() -> Built:
    config = tf.TimeSeriesTransformerConfig(
        prediction_length=4, context_length=8, lags_sequence=[1, 2], num_time_features=1,
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        encoder_layerdrop=0.0, decoder_layerdrop=0.0,
    )  # fmt: skip
    past = 10
    batch = {
        "past_values": torch.randn(2, past),
        "past_time_features": torch.randn(2, past, 1),
        "past_observed_mask": torch.ones(2, past),
        "future_values": torch.randn(2, 4),
        "future_time_features": torch.randn(2, 4, 1),
    }
    return tf.TimeSeriesTransformerForPrediction(config), batch


PERCEPTION = tuple(
    ArchitectureCase(name=build.__name__, build=build)
    for build in (
        vit, vit_mae, deit, swin, convnext, resnet, segformer, clip, vision_encoder_decoder,
        whisper, wav2vec2, hubert, time_series_transformer,
    )
)  # fmt: skip
