import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Essays(Dataset):
    def __init__(self, count, seed, length=14):
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(3, 50, (count, length), generator=generator)
        self.scores = (self.ids.float() / 50).mean(1) * 6 - 3

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {
            "input_ids": self.ids[index],
            "attention_mask": torch.ones_like(self.ids[index]),
            "labels": self.scores[index],
        }


class HuberLoss:
    def __init__(self, delta=1.0, floor=0.2):
        self.delta = delta
        self.floor = floor

    def weights(self, targets):
        return self.floor + targets.abs() / targets.abs().max()

    def __call__(self, predictions, targets):
        error = predictions - targets
        small = 0.5 * error.pow(2)
        large = self.delta * (error.abs() - 0.5 * self.delta)
        loss = torch.where(error.abs() < self.delta, small, large)
        return (loss * self.weights(targets)).mean()


class ScoreTrainer(Trainer):
    def __init__(self, *args, criterion=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.criterion = criterion

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        targets = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.criterion(outputs.logits, targets)
        return (loss, outputs) if return_outputs else loss


def build_model():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=20,
            num_labels=1,
        )
    )


def correlation(evaluation):
    predictions, labels = evaluation
    pair = torch.stack([torch.as_tensor(predictions).flatten(), torch.as_tensor(labels).flatten()])
    return {"correlation": torch.corrcoef(pair)[0, 1].item()}


def main():
    set_seed(12)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=12,
            num_train_epochs=2,
            learning_rate=1e-3,
            warmup_steps=3,
            weight_decay=0.01,
            logging_steps=8,
            save_strategy="no",
            eval_strategy="epoch",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = ScoreTrainer(
            build_model(),
            arguments,
            train_dataset=Essays(168, 0),
            eval_dataset=Essays(48, 1),
            compute_metrics=correlation,
            criterion=HuberLoss(),
        )
        trainer.train()


if __name__ == "__main__":
    main()
