from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup


@dataclass
class Config:
    micro: int = 4
    window: int = 4
    epochs: int = 2
    lr: float = 3e-3
    z_weight: float = 1e-4


class TokenLoss:
    def __init__(self, model, z_weight):
        self.model = model
        self.z_weight = z_weight

    def __call__(self, batch, count):
        logits = self.model(input_ids=batch["ids"], attention_mask=batch["mask"]).logits
        logits, labels = logits[:, :-1].float(), batch["labels"][:, 1:]
        loss = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        normaliser = logits.logsumexp(-1)[labels != -100]
        return (loss + self.z_weight * normaliser.pow(2).sum()) / count


def collate(rows):
    ids = pad_sequence(rows, batch_first=True, padding_value=0)
    labels = pad_sequence(rows, batch_first=True, padding_value=-100)
    return {"ids": ids, "mask": (labels != -100).long(), "labels": labels}


def windows(rows, config):
    order = torch.randperm(len(rows)).tolist()
    micro = [
        collate([rows[index] for index in order[start : start + config.micro]])
        for start in range(0, len(order), config.micro)
    ]
    for start in range(0, len(micro), config.window):
        yield micro[start : start + config.window]


def tokens_in(window):
    return sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in window)


def main():
    torch.manual_seed(57)
    config = Config()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=48,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            use_cache=False,
            tie_word_embeddings=True,
        )
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    lengths = torch.randint(6, 20, (120,)).tolist()
    rows = [
        (torch.randint(1, 48, (1,)) + 5 * torch.arange(length)) % 47 + 1 for length in lengths
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.95))
    steps = config.epochs * -(-len(rows) // (config.micro * config.window))
    scheduler = get_cosine_schedule_with_warmup(optimizer, 2, steps)
    criterion = TokenLoss(model, config.z_weight)
    model.train()
    for epoch in range(config.epochs):
        for window in windows(rows, config):
            count = tokens_in(window)
            total = 0.0
            for batch in window:
                loss = criterion(batch, count)
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        print(epoch, total)


if __name__ == "__main__":
    main()
