import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration

PAD, EOS = 0, 1


def make_pairs(count, vocab=32):
    pairs = []
    for _ in range(count):
        word = [random.randrange(2, vocab) for _ in range(random.randint(3, 12))]
        pairs.append((word + [EOS], sorted(word) + [EOS]))
    return pairs


def pad(rows, value):
    width = max(len(r) for r in rows)
    return torch.tensor([r + [value] * (width - len(r)) for r in rows])


def collate(pairs):
    sources, targets = zip(*pairs)
    ids = pad(sources, PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": pad(targets, -100)}


def windows(loader, size):
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def main():
    random.seed(45)
    torch.manual_seed(45)
    config = T5Config(
        vocab_size=32, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=PAD
    )
    model = T5ForConditionalGeneration(config)
    loader = DataLoader(make_pairs(88), batch_size=8, shuffle=True, collate_fn=collate)
    decay = [p for n, p in model.named_parameters() if "layer_norm" not in n]
    plain = [p for n, p in model.named_parameters() if "layer_norm" in n]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=2e-3
    )
    for epoch in range(3):
        for window in windows(loader, 4):
            tokens = sum((b["labels"] != -100).sum() for b in window)
            total = 0.0
            for batch in window:
                logits = model(**batch).logits
                loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / tokens
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch} loss {total:.4f}")


main()
