import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup

MASK, PAD = 1, 0


def configure():
    return BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        pad_token_id=PAD,
    )


def corpus(sentences, vocab, generator):
    rows = []
    for _ in range(sentences):
        start = int(torch.randint(2, vocab, (1,), generator=generator))
        length = int(torch.randint(8, 16, (1,), generator=generator))
        rows.append([2 + (start + 2 * i) % (vocab - 2) for i in range(length)])
    return rows


def collate(rows, probability=0.2):
    width = max(len(r) for r in rows)
    ids = torch.full((len(rows), width), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    attention = (ids != PAD).long()
    chosen = (torch.rand(ids.shape) < probability) & attention.bool()
    chosen[:, 0] = True
    labels = torch.where(chosen, ids, torch.tensor(-100))
    return {"input_ids": ids.masked_fill(chosen, MASK), "attention_mask": attention, "labels": labels}


def parameter_groups(model, decay):
    plain = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    return [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": decay},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]


def main():
    torch.manual_seed(27)
    generator = torch.Generator().manual_seed(27)
    model = BertForMaskedLM(configure())
    vocab = 68
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=1e-3)
    model.resize_token_embeddings(vocab, mean_resizing=False)
    loader = DataLoader(corpus(128, vocab, generator), batch_size=16, shuffle=True, collate_fn=collate)
    epochs = 3
    schedule = get_linear_schedule_with_warmup(optimizer, 2, epochs * len(loader))
    model.train()
    for epoch in range(epochs):
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
