"""Train a small T5 to put the tokens of a sentence in order."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration


@dataclass
class TaskConfig:
    """Settings of the task."""

    vocabulary: int = 40
    length: int = 8
    examples: int = 160
    pad: int = 0
    end: int = 1


class Sorting(Dataset):
    """Sequences of numbers, and the same numbers in order."""

    def __init__(self, config: TaskConfig) -> None:
        """Draw the sequences."""
        self.config = config
        self.sources = torch.randint(2, config.vocabulary, (config.examples, config.length))

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Give a sequence and its sorted form, which ends with the end token."""
        source = self.sources[index]
        ordered = source.sort().values
        return source, torch.cat([ordered, torch.tensor([self.config.end])])


class Seq2SeqTask(nn.Module):
    """A T5 with the inputs of its decoder."""

    def __init__(self, model: T5ForConditionalGeneration, config: TaskConfig) -> None:
        """Keep the model."""
        super().__init__()
        self.model = model
        self.config = config

    def decoder_inputs(self, targets: Tensor) -> Tensor:
        """Give what the decoder reads."""
        return targets.masked_fill(targets == -100, self.config.pad)

    def forward(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss of a batch."""
        output = self.model(
            input_ids=sources,
            attention_mask=(sources != self.config.pad).long(),
            decoder_input_ids=self.decoder_inputs(targets),
        )
        return nn.functional.cross_entropy(output.logits.flatten(0, 1), targets.flatten())


def build_task(config: TaskConfig) -> Seq2SeqTask:
    """Build a T5 at random initialisation."""
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=config.vocabulary,
            d_model=48,
            d_kv=12,
            d_ff=96,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            pad_token_id=config.pad,
            eos_token_id=config.end,
            decoder_start_token_id=config.pad,
        )
    )
    return Seq2SeqTask(model, config)


def run_epoch(task: Seq2SeqTask, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """Train for one epoch, and give the mean loss."""
    total = 0.0
    for sources, targets in loader:
        optimizer.zero_grad()
        loss = task(sources, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(task.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(1)
    config = TaskConfig()
    task = build_task(config)
    loader = DataLoader(Sorting(config), batch_size=16, shuffle=True)
    optimizer = torch.optim.Adam(task.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        print(epoch, run_epoch(task, loader, optimizer))


if __name__ == "__main__":
    main()
