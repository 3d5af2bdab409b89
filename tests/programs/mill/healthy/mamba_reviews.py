"""Classify sequences of unequal length with a small Mamba."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import MambaConfig, MambaModel


@dataclass
class Settings:
    """Settings of the classifier."""

    vocabulary: int = 40
    width: int = 32
    classes: int = 3
    batch_size: int = 12
    epochs: int = 2
    lr: float = 3e-3


class Reviews(Dataset):
    """Sequences whose last tokens decide the class."""

    def __init__(self, settings: Settings, count: int) -> None:
        """Draw sequences of 3 to 16 tokens."""
        generator = torch.Generator().manual_seed(8)
        lengths = torch.randint(3, 17, (count,), generator=generator).tolist()
        self.rows = [
            torch.randint(1, settings.vocabulary, (length,), generator=generator)
            for length in lengths
        ]
        self.labels = [int(row[-2:].sum()) % settings.classes for row in self.rows]

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Give a sequence and its class."""
        return self.rows[index], self.labels[index]


def collate(rows: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad the sequences on the right."""
    ids = pad_sequence([row for row, _ in rows], batch_first=True, padding_value=0)
    lengths = torch.tensor([len(row) for row, _ in rows])
    return ids, lengths, torch.tensor([label for _, label in rows])


class LastToken(nn.Module):
    """Take the state of a sequence's last token."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Reduce [batch, time, width] to [batch, width]."""
        return states[torch.arange(len(states)), lengths - 1]


class Classifier(nn.Module):
    """A Mamba with a linear head."""

    def __init__(self, settings: Settings) -> None:
        """Build the model at random initialisation."""
        super().__init__()
        self.backbone = MambaModel(
            MambaConfig(
                vocab_size=settings.vocabulary,
                hidden_size=settings.width,
                state_size=8,
                num_hidden_layers=2,
                pad_token_id=0,
                use_mambapy=False,
            )
        )
        self.pool = LastToken()
        self.head = nn.Sequential(
            nn.LayerNorm(settings.width), nn.Linear(settings.width, settings.classes)
        )

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Give the logits of the classes."""
        states = self.backbone(ids, attention_mask=(ids != 0).long()).last_hidden_state
        return self.head(self.pool(states, lengths))


def main() -> None:
    """Train."""
    torch.manual_seed(4)
    settings = Settings()
    model = Classifier(settings)
    loader = DataLoader(
        Reviews(settings, 144), settings.batch_size, shuffle=True, collate_fn=collate
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, settings.epochs * len(loader)
    )
    for epoch in range(settings.epochs):
        for ids, lengths, labels in loader:
            loss = nn.functional.cross_entropy(model(ids, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
