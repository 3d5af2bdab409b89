import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

MASK, IGNORED = 1, -100


class Sentences(Dataset):
    def __init__(self, count, length=12):
        start = torch.randint(2, 40, (count, 1))
        self.rows = (start + torch.arange(length) * 3) % 38 + 2

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        hidden = torch.rand(len(row)) < 0.25
        hidden[int(torch.randint(0, len(row), ()))] = True
        return {
            "input_ids": row.masked_fill(hidden, MASK),
            "labels": row.masked_fill(~hidden, IGNORED),
        }


def build(width, depth):
    return BertForMaskedLM(
        BertConfig(
            vocab_size=40,
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=4,
            intermediate_size=2 * width,
            max_position_embeddings=16,
        )
    )


class DistillingTrainer(Trainer):
    def __init__(self, *args, teacher, projection, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.eval().requires_grad_(False)
        self.projection = projection

    def create_optimizer(self, model=None):
        optimizer = super().create_optimizer()
        optimizer.add_param_group(
            {"params": list(self.projection.parameters()), "weight_decay": 0.0}
        )
        return optimizer

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        output = model(**inputs, output_hidden_states=True)
        with torch.no_grad():
            taught = self.teacher(input_ids=inputs["input_ids"], output_hidden_states=True)
        chosen = inputs["labels"] != IGNORED
        soft = F.kl_div(
            output.logits[chosen].div(2).log_softmax(-1),
            taught.logits[chosen].div(2).softmax(-1),
            reduction="batchmean",
        )
        hidden = self.projection(output.hidden_states[-1])
        matched = 1 - F.cosine_similarity(hidden, taught.hidden_states[-1], dim=-1).mean()
        loss = output.loss + 4 * soft + 0.5 * matched
        return (loss, output) if return_outputs else loss


class Freezer(TrainerCallback):
    def __init__(self, module, steps):
        self.module = module
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.steps:
            self.module.requires_grad_(False)


def arguments(folder, epochs, lr):
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=16,
        num_train_epochs=epochs,
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        save_strategy="no",
        report_to=[],
        logging_steps=4,
        use_cpu=True,
        disable_tqdm=True,
    )


def main():
    set_seed(59)
    data = Sentences(192)
    with tempfile.TemporaryDirectory() as folder:
        teacher = build(48, 2)
        Trainer(teacher, arguments(folder, 2, 3e-3), train_dataset=data).train()
        student = build(32, 1)
        trainer = DistillingTrainer(
            student,
            arguments(folder, 3, 2e-3),
            train_dataset=data,
            teacher=teacher,
            projection=nn.Linear(32, 48),
            callbacks=[Freezer(student.bert.embeddings.position_embeddings, 8)],
        )
        trainer.train()


if __name__ == "__main__":
    main()
