import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model


class AttentionPool(nn.Module):
    def __init__(self, width, heads=1):
        super().__init__()
        self.query = nn.Parameter(torch.randn(heads, width) / width**0.5)
        self.key = nn.Linear(width, width)

    def forward(self, hidden, mask):
        score = torch.einsum("btd,hd->bth", self.key(hidden), self.query)
        score = score.masked_fill(~mask.unsqueeze(-1), -1e4)
        weight = score.softmax(dim=1)
        return torch.einsum("bth,btd->bhd", weight * mask.unsqueeze(-1), hidden).flatten(1)


class RewardModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.backbone = GPT2Model(config)
        self.pool = AttentionPool(config.n_embd)
        self.score = nn.Linear(config.n_embd, 1, bias=False)

    def forward(self, tokens, mask):
        hidden = self.backbone(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        return self.score(self.pool(hidden, mask)).squeeze(-1)


class Comparisons:
    def __init__(self, seed, vocabulary=70, length=16):
        self.generator = torch.Generator().manual_seed(seed)
        self.vocabulary, self.length = vocabulary, length

    def answers(self, count, bonus):
        tokens = torch.randint(10, self.vocabulary, (count, self.length), generator=self.generator)
        marked = torch.rand(tokens.shape, generator=self.generator) < bonus
        tokens[marked] = 5
        lengths = torch.randint(8, self.length + 1, (count, 1), generator=self.generator)
        return tokens, torch.arange(self.length) < lengths

    def sample(self, count):
        return self.answers(count, 0.25), self.answers(count, 0.1)


def train(model, data, steps=40, batch=16):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    model.train()
    for step in range(steps):
        (chosen, chosen_mask), (rejected, rejected_mask) = data.sample(batch)
        reward = model(torch.cat([chosen, rejected]), torch.cat([chosen_mask, rejected_mask]))
        better, worse = reward.chunk(2)
        loss = -F.logsigmoid(better - worse).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 10 == 9:
            print(step + 1, round(loss.item(), 3), (better > worse).float().mean().item())


if __name__ == "__main__":
    torch.manual_seed(1)
    small = GPT2Config(
        vocab_size=70, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    train(RewardModel(small), Comparisons(6))
