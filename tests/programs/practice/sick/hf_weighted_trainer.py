import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Reviews(Dataset):
    def __init__(self, n, vocab=50, length=12):
        self.ids = torch.randint(5, vocab, (n, length))
        self.labels = (torch.rand(n) < 0.3).long()
        self.ids[self.labels == 1, 2] = 4

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        ids = self.ids[i]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[i]}


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = torch.softmax(outputs.logits, dim=-1)
        loss_fct = nn.CrossEntropyLoss(weight=torch.tensor([0.7, 1.6]))
        loss = loss_fct(logits.view(-1, 2), labels.view(-1))
        return (loss, outputs) if return_outputs else loss


def main():
    set_seed(7)
    config = DistilBertConfig(
        vocab_size=50, dim=32, hidden_dim=64, n_layers=2, n_heads=2, max_position_embeddings=16, num_labels=2
    )
    model = DistilBertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, max_steps=40, per_device_train_batch_size=16, learning_rate=5e-4, logging_steps=20,
            report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
        )
        WeightedTrainer(model=model, args=args, train_dataset=Reviews(256)).train()


if __name__ == "__main__":
    main()
