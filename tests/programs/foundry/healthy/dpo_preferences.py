"""Direct preference optimisation of a small GPT-2."""
import copy

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB, PROMPT, REPLY = 30, 5, 7


def make_policy():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=32, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def reply_logps(model, ids):
    logits = model(input_ids=ids).logits[:, :-1]
    logps = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(-1)
    return logps[:, PROMPT - 1 :].sum(-1)


def preferences(n):
    prompt = torch.randint(1, VOCAB, (n, PROMPT))
    rising = (prompt[:, -1:] + torch.arange(1, REPLY + 1)) % VOCAB
    noise = torch.randint(1, VOCAB, (n, REPLY))
    return torch.cat([prompt, rising], 1), torch.cat([prompt, noise], 1)


class DPOTrainer:
    def __init__(self, policy, beta=0.1, lr=1e-3):
        self.policy = policy
        self.reference = copy.deepcopy(policy)
        self.beta = beta
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=lr)

    def loss(self, chosen, rejected):
        policy_ratio = reply_logps(self.policy, chosen) - reply_logps(self.policy, rejected)
        with torch.no_grad():
            reference_ratio = reply_logps(self.reference, chosen) - reply_logps(self.reference, rejected)
        return -F.logsigmoid(self.beta * (policy_ratio - reference_ratio)).mean()

    def step(self, chosen, rejected):
        loss = self.loss(chosen, rejected)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(105)
    trainer = DPOTrainer(make_policy())
    for it in range(14):
        loss = trainer.step(*preferences(16))
        if it % 4 == 0:
            print(f"it {it} loss {loss:.4f}")


if __name__ == "__main__":
    main()
