import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Samples(Dataset):
    def __init__(self, n=256):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 12, generator=g)
        self.y = (self.x[:, 0] + self.x[:, 1] * self.x[:, 2] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"features": self.x[i], "labels": self.y[i]}


class Scorer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, features, labels=None, num_items_in_batch=None):
        logits = self.net(features)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits, labels, reduction="sum")
            loss = loss / (num_items_in_batch or len(labels))
        return {"loss": loss, "logits": logits}


def main():
    torch.manual_seed(28)
    args = TrainingArguments(
        output_dir="/tmp/scorer",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_train_epochs=6,
        learning_rate=0.05,
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=8,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=Scorer(), args=args, train_dataset=Samples())
    trainer.train()


if __name__ == "__main__":
    main()
