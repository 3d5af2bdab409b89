"""Fine-tune a small GPT-2 on pairs of instruction and response."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

EOS = 0
SEPARATOR = 1


@dataclass(frozen=True)
class Settings:
    """Settings of the fine-tuning."""

    vocabulary: int = 64
    examples: int = 120
    batch_size: int = 8
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 11


class Instructions(Dataset):
    """Instructions whose response repeats their tokens backwards."""

    def __init__(self, settings: Settings) -> None:
        """Draw all examples."""
        rng = random.Random(settings.seed)
        self.rows = []
        for _ in range(settings.examples):
            prompt = [rng.randrange(2, settings.vocabulary) for _ in range(rng.randrange(2, 9))]
            self.rows.append((prompt + [SEPARATOR], prompt[::-1] + [EOS]))

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """Give an example as one sequence and the length of its prompt."""
        prompt, response = self.rows[index]
        return {"input_ids": prompt + response, "prompt_length": len(prompt)}


@dataclass
class Collator:
    """Pad the sequences of a batch to the longest one."""

    pad_token_id: int
    ignore_index: int = -100

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        """Stack the sequences, with a mask and labels."""
        longest = max(len(row["input_ids"]) for row in rows)
        ids = torch.full((len(rows), longest), self.pad_token_id)
        mask = torch.zeros(len(rows), longest, dtype=torch.long)
        for index, row in enumerate(rows):
            length = len(row["input_ids"])
            ids[index, :length] = torch.tensor(row["input_ids"])
            mask[index, :length] = 1
        labels = ids.clone()
        for index, row in enumerate(rows):
            labels[index, : row["prompt_length"]] = self.ignore_index
        labels[mask == 0] = self.ignore_index
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def build_model(settings: Settings) -> GPT2LMHeadModel:
    """Build a GPT-2 at random initialisation."""
    config = GPT2Config(
        vocab_size=settings.vocabulary,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    return GPT2LMHeadModel(config)


def epochs(loader: DataLoader, count: int) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
    """Give the batches of several epochs."""
    for epoch in range(count):
        for batch in loader:
            yield epoch, batch


def main() -> None:
    """Train."""
    settings = Settings()
    torch.manual_seed(settings.seed)
    model = build_model(settings)
    loader = DataLoader(
        Instructions(settings),
        batch_size=settings.batch_size,
        shuffle=True,
        collate_fn=Collator(pad_token_id=EOS),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0)
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, settings.epochs * len(loader))
    model.train()
    for step, (epoch, batch) in enumerate(epochs(loader, settings.epochs)):
        output = model(**batch)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(epoch, step, round(output.loss.item(), 4))


if __name__ == "__main__":
    main()
