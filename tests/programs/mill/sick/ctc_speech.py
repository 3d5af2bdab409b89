from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import Wav2Vec2Config, Wav2Vec2Model


@dataclass
class SpeechConfig:
    letters: int = 8
    hop: int = 16
    width: int = 32
    batch_size: int = 8
    epochs: int = 3
    lr: float = 1e-3
    blank: int = 0


class Words(Dataset):
    def __init__(self, config, count):
        generator = torch.Generator().manual_seed(2)
        self.items = []
        for _ in range(count):
            length = int(torch.randint(2, 4, (), generator=generator))
            word = torch.randint(1, config.letters, (length,), generator=generator)
            time = torch.arange(12 * config.hop) / config.hop
            sound = torch.cat([torch.sin(time * (1 + letter)) for letter in word.tolist()])
            self.items.append((sound + 0.05 * torch.randn(len(sound)), word))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(rows):
    sounds, words = zip(*rows, strict=True)
    mask = pad_sequence([torch.ones(len(sound)) for sound in sounds], batch_first=True)
    return (
        pad_sequence(sounds, batch_first=True),
        mask.long(),
        torch.cat(words),
        torch.tensor([len(word) for word in words]),
    )


class Speller(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wav2vec = Wav2Vec2Model(
            Wav2Vec2Config(
                hidden_size=config.width,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=64,
                conv_dim=(16, 16),
                conv_kernel=(8, 4),
                conv_stride=(8, 2),
                num_feat_extract_layers=2,
                num_conv_pos_embeddings=8,
                num_conv_pos_embedding_groups=4,
                apply_spec_augment=False,
                do_stable_layer_norm=True,
                feat_extract_norm="layer",
                layerdrop=0.0,
            )
        )
        self.head = nn.Linear(config.width, config.letters)

    def forward(self, sounds, mask):
        states = self.wav2vec(sounds, attention_mask=mask).last_hidden_state
        lengths = self.wav2vec._get_feat_extract_output_lengths(mask.sum(1))
        return self.head(states), lengths


class CTCObjective:
    def __init__(self, blank):
        self.criterion = nn.CTCLoss(blank=blank, zero_infinity=True)

    def scores(self, logits):
        return logits.transpose(0, 1)

    def __call__(self, logits, lengths, words, word_lengths):
        return self.criterion(self.scores(logits), words, lengths, word_lengths)


def main():
    torch.manual_seed(37)
    config = SpeechConfig()
    model = Speller(config)
    objective = CTCObjective(config.blank)
    loader = DataLoader(Words(config, 96), config.batch_size, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        total = 0.0
        for sounds, mask, words, word_lengths in loader:
            logits, lengths = model(sounds, mask)
            loss = objective(logits, lengths, words, word_lengths)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        print(epoch, total / len(loader))


if __name__ == "__main__":
    main()
