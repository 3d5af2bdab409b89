import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

EPOCHS = 5


def build():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=40, n_positions=24, n_embd=32, n_layer=2, n_head=2,
            bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )


def dataset(n=240):
    generator = torch.Generator().manual_seed(11)
    start = torch.randint(0, 40, (n, 1), generator=generator)
    step = torch.randint(1, 3, (n, 1), generator=generator)
    return TensorDataset((start + step * torch.arange(20)) % 40)


def decay_groups(model, weight_decay):
    plain = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    return [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": weight_decay}]


def main():
    torch.manual_seed(23)
    loader = DataLoader(dataset(), batch_size=16, shuffle=True)
    model = build()
    optimizer = torch.optim.AdamW(decay_groups(model, 0.01), lr=2e-3)
    steps = EPOCHS * len(loader)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    for epoch in range(EPOCHS):
        total = 0.0
        for (ids,) in loader:
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f} lr {schedule.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
