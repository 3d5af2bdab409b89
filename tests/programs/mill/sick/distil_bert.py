import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, DistilBertConfig
from transformers import DistilBertForSequenceClassification


@dataclass
class DistillationLoss:
    temperature: float = 2.0
    alpha: float = 0.7

    def soft(self, student, teacher):
        targets = F.softmax(teacher / self.temperature, dim=-1)
        inputs = F.softmax(student / self.temperature, dim=-1)
        return F.kl_div(inputs, targets, reduction="batchmean") * self.temperature**2

    def __call__(self, student, teacher, labels):
        hard = F.cross_entropy(student, labels)
        return self.alpha * self.soft(student, teacher) + (1 - self.alpha) * hard


def draw(count):
    ids = torch.randint(3, 64, (count, 10))
    return TensorDataset(ids, (ids[:, 0] + ids[:, 1]) % 4)


def build_teacher():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=64,
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=16,
            num_labels=4,
        )
    )


def build_student():
    return DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=64,
            dim=32,
            n_layers=2,
            n_heads=4,
            hidden_dim=64,
            max_position_embeddings=16,
            num_labels=4,
        )
    )


def pretrain(teacher, loader, lr):
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=lr)
    teacher.train()
    for ids, labels in loader:
        loss = teacher(ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def distil(student, teacher, loader, criterion, lr, epochs):
    optimizer = torch.optim.AdamW(student.parameters(), lr=lr)
    teacher.eval().requires_grad_(False)
    student.train()
    for epoch in range(epochs):
        total = 0.0
        for ids, labels in loader:
            with torch.no_grad():
                soft = teacher(ids).logits
            loss = criterion(student(ids).logits, soft, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(epoch, total / len(loader))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(10)
    loader = DataLoader(draw(192), batch_size=16, shuffle=True)
    teacher, student = build_teacher(), build_student()
    print(pretrain(teacher, loader, args.lr))
    criterion = DistillationLoss(args.temperature, args.alpha)
    distil(student, teacher, loader, criterion, args.lr, epochs=2)


if __name__ == "__main__":
    main()
