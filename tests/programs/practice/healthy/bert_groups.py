import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


def make_dataset(n, length, vocab):
    ids = torch.randint(5, vocab, (n, length))
    labels = torch.randint(0, 2, (n,))
    ids[:, 0] = 2
    ids[labels == 1, 3] = 4
    mask = torch.ones_like(ids)
    mask[::3, -4:] = 0
    return TensorDataset(ids, mask, labels)


def make_optimizer(model, lr, weight_decay):
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
            "weight_decay": weight_decay,
        },
        {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(42)
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, num_labels=2,
    )
    model = BertForSequenceClassification(config)
    loader = DataLoader(make_dataset(256, 16, 60), batch_size=16, shuffle=True)
    optimizer = make_optimizer(model, args.lr, args.weight_decay)
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, args.epochs * len(loader))
    model.train()
    for epoch in range(args.epochs):
        for ids, mask, labels in loader:
            output = model(input_ids=ids, attention_mask=mask, labels=labels)
            output.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        print(epoch, output.loss.item())


if __name__ == "__main__":
    main()
