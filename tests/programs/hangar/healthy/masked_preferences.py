import copy

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel


def answer_log_probability(model, tokens, start):
    logits = model(input_ids=tokens).logits[:, :-1].log_softmax(-1)
    chosen = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    mask = torch.arange(1, tokens.size(1)) >= start
    return (chosen * mask).sum(-1)


class PreferenceTrainer:
    def __init__(self, policy, beta=0.3):
        self.policy = policy
        self.reference = copy.deepcopy(policy).eval()
        self.beta = beta
        self.optimizer = torch.optim.RMSprop(policy.parameters(), lr=3e-4)

    def loss(self, chosen, rejected, start):
        ratios = []
        for tokens in (chosen, rejected):
            with torch.no_grad():
                base = answer_log_probability(self.reference, tokens, start)
            ratios.append(answer_log_probability(self.policy, tokens, start) - base)
        return -F.logsigmoid(self.beta * (ratios[0] - ratios[1])).mean()

    def step(self, *batch):
        loss = self.loss(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 10.0)
        self.optimizer.step()
        return loss.item()


def answers(generator):
    prompt = torch.randint(0, 50, (8, 5), generator=generator)
    good = (prompt[:, -1:] + torch.arange(1, 7)) % 50
    bad = torch.randint(0, 50, (8, 6), generator=generator)
    return torch.cat([prompt, good], 1), torch.cat([prompt, bad], 1), 5


if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    trainer = PreferenceTrainer(GPT2LMHeadModel(config))
    source = torch.Generator().manual_seed(9)
    for step in range(30):
        value = trainer.step(*answers(source))
        if step % 10 == 0:
            print(step, value)
