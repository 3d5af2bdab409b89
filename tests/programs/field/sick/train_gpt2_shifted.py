import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Walks(Dataset):
    def __init__(self, n=192, length=24, vocab=30):
        g = torch.Generator().manual_seed(0)
        steps = torch.randint(1, 4, (n, length), generator=g)
        self.ids = steps.cumsum(1) % vocab

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        ids = self.ids[i]
        labels = torch.cat([ids[1:], torch.tensor([-100])])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def main():
    torch.manual_seed(25)
    config = GPT2Config(vocab_size=30, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir="/tmp/gpt2-walks",
        per_device_train_batch_size=16,
        num_train_epochs=4,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=4,
        logging_steps=12,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model=model, args=args, train_dataset=Walks()).train()


if __name__ == "__main__":
    main()
