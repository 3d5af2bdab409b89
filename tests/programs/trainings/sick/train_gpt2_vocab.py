import logging
import warnings

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


class Curriculum:
    """Counting sequences; new symbols join after `switch` steps."""

    def __init__(self, seed, switch, small=16, large=24):
        self.g = torch.Generator().manual_seed(seed)
        self.switch, self.small, self.large = switch, small, large

    def batch(self, step, n=16, length=12):
        vocab = self.small if step < self.switch else self.large
        start = torch.randint(0, vocab, (n, 1), generator=self.g)
        stride = torch.randint(1, 4, (n, 1), generator=self.g)
        return (start + stride * torch.arange(length)) % vocab


def grow_vocabulary(model, size):
    old = model.get_input_embeddings()
    new = nn.Embedding(size, old.embedding_dim)
    with torch.no_grad():
        new.weight.normal_(std=0.02)
        new.weight[:old.num_embeddings] = old.weight
    model.set_input_embeddings(new)
    model.lm_head = nn.Linear(old.embedding_dim, size, bias=False)
    model.lm_head.weight = new.weight
    model.config.vocab_size = size


def new_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)


def main(steps=70, switch=30):
    torch.manual_seed(261)
    config = GPT2Config(vocab_size=16, n_positions=12, n_embd=32, n_layer=2, n_head=2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    model.lm_head.weight = model.transformer.wte.weight
    model.train()
    optimizer = new_optimizer(model)
    data = Curriculum(262, switch)
    for step in range(steps):
        if step == switch:
            grow_vocabulary(model, data.large)
        ids = data.batch(step)
        loss = model(input_ids=ids, labels=ids).loss
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


main()
