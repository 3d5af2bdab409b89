import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


class Prompted(nn.Module):
    def __init__(self, model, length=6):
        super().__init__()
        self.model = model.requires_grad_(False)
        start = model.transformer.wte.weight[:length].detach().clone()
        self.prompt = nn.Parameter(start)

    def forward(self, ids, labels):
        words = self.model.transformer.wte(ids)
        prompt = self.prompt.expand(len(ids), -1, -1)
        ignored = torch.full((len(ids), len(self.prompt)), -100)
        return self.model(
            inputs_embeds=torch.cat([prompt, words], dim=1),
            labels=torch.cat([ignored, labels], dim=1),
        ).loss


def build():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=30, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )


def counting(n, step):
    start = torch.randint(0, 30, (n, 1))
    return (start + step * torch.arange(12)) % 30


def pretrain(model, steps=60):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        ids = torch.cat([counting(16, 1), counting(16, 2)])
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(8)
    base = build()
    print(f"pretrained: {pretrain(base):.3f}")
    base.zero_grad()
    model = Prompted(base)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-2)
    for step in range(60):
        ids = counting(16, 2)
        labels = ids.clone()
        labels[:, 0] = -100
        loss = model(ids, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
