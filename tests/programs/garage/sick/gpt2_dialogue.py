import random

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.optimization import get_cosine_schedule_with_warmup

EOS = 0


class Dialogues(Dataset):
    def __init__(self, count, vocab, longest):
        self.rows = []
        for _ in range(count):
            length = random.randint(5, longest)
            start, stride = random.randrange(1, vocab), random.choice([1, 2])
            tokens = [1 + (start + stride * i) % (vocab - 1) for i in range(length)]
            self.rows.append(tokens + [EOS])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Collator:
    def __init__(self, pad):
        self.pad = pad

    def __call__(self, rows):
        width = max(map(len, rows))
        ids = torch.tensor([row + [self.pad] * (width - len(row)) for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(width)[None] < lengths[:, None]).long()
        labels = ids.clone()
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class FineTuner:
    def __init__(self, model, loader, epochs, lr):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        self.scheduler = get_cosine_schedule_with_warmup(self.optimizer, 4, epochs * len(loader))

    def step(self, batch):
        output = self.model(**batch)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return output.loss.item()

    def fit(self):
        self.model.train()
        for epoch in range(self.epochs):
            losses = [self.step(batch) for batch in self.loader]
            print(f"epoch {epoch}: {sum(losses) / len(losses):.4f}")


def main():
    random.seed(28)
    torch.manual_seed(28)
    config = GPT2Config(
        vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=EOS, eos_token_id=EOS
    )
    model = GPT2LMHeadModel(config)
    data = Dialogues(96, 48, 40)
    loader = DataLoader(data, batch_size=12, shuffle=True, collate_fn=Collator(EOS))
    FineTuner(model, loader, epochs=2, lr=1e-3).fit()


if __name__ == "__main__":
    main()
