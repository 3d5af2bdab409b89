"""Train a classifier of spoken commands on the encoder and decoder of Whisper."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import WhisperConfig, WhisperModel


@dataclass
class Config:
    """Settings of the recogniser."""

    mels: int = 16
    frames: int = 40
    tokens: int = 30
    width: int = 32
    batch_size: int = 8
    rate_encoder: float = 5e-4
    rate_decoder: float = 2e-3
    epochs: int = 3


class Recogniser(nn.Module):
    """A Whisper whose decoder spells the command."""

    def __init__(self, config: Config) -> None:
        """Build the model at random initialisation."""
        super().__init__()
        self.whisper = WhisperModel(
            WhisperConfig(
                vocab_size=config.tokens,
                num_mel_bins=config.mels,
                max_source_positions=config.frames // 2,
                max_target_positions=16,
                d_model=config.width,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
                begin_suppress_tokens=None,
                suppress_tokens=None,
            )
        )
        self.head = nn.Linear(config.width, config.tokens)

    def encode(self, features: Tensor) -> Tensor:
        """Encode log-mel frames."""
        normal = (features - features.mean((1, 2), keepdim=True)) / features.std()
        return self.whisper.get_encoder()(normal).last_hidden_state

    def decode(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Give the logits of the tokens that follow."""
        hidden = self.whisper.get_decoder()(tokens, encoder_hidden_states=states)
        return self.head(hidden.last_hidden_state)

    def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
        """Give the logits for shifted tokens."""
        return self.decode(self.encode(features), tokens[:, :-1])


def draw_commands(config: Config, count: int) -> TensorDataset:
    """Draw spectra whose bands spell a word of three tokens."""
    words = torch.randint(3, config.tokens, (count, 3))
    start, end = torch.full((count, 1), 1), torch.full((count, 1), 2)
    features = 0.3 * torch.randn(count, config.mels, config.frames)
    for index in range(count):
        for place, token in enumerate(words[index].tolist()):
            features[index, token % config.mels, place * 12 : place * 12 + 10] += 2.0
    return TensorDataset(features, torch.cat([start, words, end], dim=1))


def build_optimizer(model: Recogniser, config: Config) -> torch.optim.Optimizer:
    """Give the encoder a rate of its own."""
    encoder = list(model.whisper.encoder.parameters())
    inside = {id(p) for p in encoder}
    rest = [p for p in model.parameters() if id(p) not in inside]
    return torch.optim.AdamW(
        [
            {"params": encoder, "lr": config.rate_encoder},
            {"params": rest, "lr": config.rate_decoder},
        ]
    )


def main() -> None:
    """Train."""
    torch.manual_seed(5)
    config = Config()
    model = Recogniser(config)
    loader = DataLoader(draw_commands(config, 96), config.batch_size, shuffle=True)
    optimizer = build_optimizer(model, config)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(config.epochs):
        running = 0.0
        for features, tokens in loader:
            logits = model(features, tokens)
            loss = criterion(logits.transpose(1, 2), tokens[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(epoch, running / len(loader))


if __name__ == "__main__":
    main()
