"""GPT-2 with accumulated gradients; each window's loss is normalised by all of its tokens."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB, PAD, ACCUM = 32, 31, 3


def documents(g, n):
    rows = []
    for _ in range(n):
        length = int(torch.randint(4, 22, (1,), generator=g))
        start = torch.randint(0, 30, (1,), generator=g)
        rows.append((start + 2 * torch.arange(length)) % 30)
    ids = torch.full((n, max(map(len, rows))), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids, (ids != PAD).long()


def make_model():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=PAD, eos_token_id=PAD, tie_word_embeddings=True,
    )
    return GPT2LMHeadModel(config)


def summed_loss(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    labels = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def main():
    torch.manual_seed(304)
    g = torch.Generator().manual_seed(305)
    model = make_model().train()
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=2e-3
    )
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 4))
    for step in range(9):
        window = [documents(g, 6) for _ in range(ACCUM)]
        tokens = sum(int(mask[:, 1:].sum()) for _, mask in window)
        total = 0.0
        for ids, mask in window:
            loss = summed_loss(model, ids, mask) / tokens
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step} loss {total:.4f} norm {norm.item():.3f}")


if __name__ == "__main__":
    main()
