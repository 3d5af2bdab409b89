from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class Config:
    block: int = 16
    batch: int = 16
    steps: int = 50
    lr: float = 3e-3


class Blocks(Dataset):
    def __init__(self, tokens, block):
        self.tokens, self.block = tokens, block

    def __len__(self):
        return (len(self.tokens) - 2) // self.block

    def __getitem__(self, i):
        chunk = self.tokens[i * self.block : (i + 1) * self.block + 1]
        return {"input_ids": chunk[:-1], "labels": chunk[1:].clone()}


def main(cfg):
    torch.manual_seed(0)
    tokens = torch.randint(0, 40, (8000,))
    for i in range(2, len(tokens)):
        if i % 3:
            tokens[i] = (tokens[i - 1] * 3 + 1) % 40
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
    ))
    loader = DataLoader(Blocks(tokens, cfg.block), batch_size=cfg.batch, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    it = iter(loader)
    for step in range(cfg.steps):
        try:
            batch = next(it)
        except StopIteration:
            it = iter(loader)
            batch = next(it)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main(Config())
