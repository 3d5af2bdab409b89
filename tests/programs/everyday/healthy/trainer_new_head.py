import logging
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

logging.disable(logging.WARNING)


class Tickets(Dataset):
    def __init__(self, n, length=12, vocab=50):
        self.ids = torch.randint(5, vocab, (n, length))
        self.labels = (self.ids[:, 0] // 15).clamp(max=2)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones_like(self.ids[i]), "labels": self.labels[i]}


def build():
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=16, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(1)
    model = build()
    model.classifier = nn.Linear(32, 3)
    model.num_labels = model.config.num_labels = 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=32, max_steps=50, logging_steps=10,
            report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", seed=1,
        )
        trainer = Trainer(model=model, args=args, train_dataset=Tickets(512), optimizers=(optimizer, None))
        trainer.train()


if __name__ == "__main__":
    main()
