import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
    set_seed,
)


@dataclass
class Plan:
    batch_size: int = 8
    epochs: int = 4
    peak: float = 2e-3
    warmup_share: float = 0.1
    decay: float = 0.01


class Melodies(Dataset):
    def __init__(self, count, length=16, notes=24):
        generator = torch.Generator().manual_seed(3)
        steps = torch.randint(-2, 3, (count, length), generator=generator)
        self.notes = (notes // 2 + steps.cumsum(1)) % notes

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, index):
        return {"input_ids": self.notes[index], "labels": self.notes[index]}


class Rates(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_step_end(self, args, state, control, lr_scheduler=None, **kwargs):
        self.seen.append(lr_scheduler.get_last_lr()[0])


class OptimizerFactory:
    def __init__(self, plan):
        self.plan = plan

    def groups(self, model):
        decayed = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        return [
            {"params": decayed, "weight_decay": self.plan.decay},
            {"params": others, "weight_decay": 0.0},
        ]

    def total_steps(self, dataset):
        return len(dataset) // self.plan.batch_size

    def __call__(self, model, dataset):
        total = self.total_steps(dataset)
        optimizer = torch.optim.AdamW(self.groups(model), lr=self.plan.peak)
        warmup = max(1, round(self.plan.warmup_share * total))
        return optimizer, get_cosine_schedule_with_warmup(optimizer, warmup, total)


def build_model():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=24,
            n_positions=16,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def main():
    set_seed(5)
    plan = Plan()
    dataset = Melodies(96)
    model = build_model()
    optimizers = OptimizerFactory(plan)(model, dataset)
    rates = Rates()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=plan.batch_size,
            num_train_epochs=plan.epochs,
            logging_steps=12,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model,
            arguments,
            train_dataset=dataset,
            optimizers=optimizers,
            callbacks=[rates],
        )
        trainer.train()
    print(max(rates.seen), rates.seen[-1])


if __name__ == "__main__":
    main()
