import argparse
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup


@dataclass
class Arguments:
    batch_size: int
    accumulation: int
    epochs: int
    lr: float
    max_norm: float


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--max-norm", type=float, default=10.0)
    return Arguments(**vars(parser.parse_args()))


class Reversal(Dataset):
    def __init__(self, count, vocabulary):
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(3, vocabulary, (count, 7), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"source": row, "target": torch.cat([row.flip(0), torch.tensor([1])])}


def collate(rows):
    source = pad_sequence([row["source"] for row in rows], batch_first=True)
    target = pad_sequence([row["target"] for row in rows], batch_first=True, padding_value=-100)
    return {"input_ids": source, "labels": target}


class Engine:
    def __init__(self, arguments, model, optimizer, scheduler, loader):
        self.arguments = arguments
        self.accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=arguments.accumulation
        )
        prepared = self.accelerator.prepare(model, optimizer, scheduler, loader)
        self.model, self.optimizer, self.scheduler, self.loader = prepared

    def loss(self, batch):
        output = self.model(**batch)
        return output.loss

    def train_batch(self, batch):
        with self.accelerator.accumulate(self.model):
            loss = self.loss(batch)
            self.accelerator.backward(loss)
            if self.accelerator.sync_gradients:
                self.accelerator.clip_grad_norm_(
                    self.model.parameters(), self.arguments.max_norm
                )
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def train(self):
        self.model.train()
        for epoch in range(self.arguments.epochs):
            losses = torch.stack([self.train_batch(batch) for batch in self.loader])
            mean = self.accelerator.gather(losses).mean().item()
            self.accelerator.print(epoch, mean)


def build_model():
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=32,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
    )


def main():
    arguments = parse()
    set_seed(17)
    model = build_model()
    loader = DataLoader(
        Reversal(256, 32), arguments.batch_size, shuffle=True, collate_fn=collate
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    steps = arguments.epochs * len(loader) // arguments.accumulation
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, steps)
    Engine(arguments, model, optimizer, scheduler, loader).train()


if __name__ == "__main__":
    main()
