import torch
import torch.nn as nn
import torch.nn.functional as F


class Policy(nn.Module):
    def __init__(self, vocab=12, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h, _ = self.rnn(self.embed(tokens))
        return self.head(h)

    @torch.no_grad()
    def generate(self, prompt, length):
        tokens = prompt
        for _ in range(length):
            logits = self(tokens)[:, -1]
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
        return tokens


def logprobs(policy, tokens, start):
    logits = policy(tokens)[:, start - 1 : -1]
    return logits.log_softmax(-1).gather(2, tokens[:, start:].unsqueeze(-1)).squeeze(-1)


def reward(tokens, start):
    answer = tokens[:, start:]
    return (answer == tokens[:, :1]).float().mean(1) - 0.2 * (answer == 0).float().mean(1)


class GRPO:
    def __init__(self, policy, reference, group=8, beta=0.02, epsilon=0.2):
        self.policy, self.reference = policy, reference
        self.group, self.beta, self.epsilon = group, beta, epsilon
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)

    def step(self, prompts, length=5):
        prompts = prompts.repeat_interleave(self.group, 0)
        start = prompts.shape[1]
        tokens = self.policy.generate(prompts, length)
        scores = reward(tokens, start)
        grouped = scores.view(-1, self.group)
        advantage = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with torch.no_grad():
            ref = logprobs(self.reference, tokens, start)
        logp = logprobs(self.policy, tokens, start)
        old = logp.detach()
        ratio = torch.exp(logp - old)
        clipped = ratio.clamp(1 - self.epsilon, 1 + self.epsilon)
        policy_term = -torch.min(ratio * advantage, clipped * advantage)
        kl = torch.exp(ref - logp) - (ref - logp) - 1
        loss = (policy_term + self.beta * kl).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return scores.mean().item()


torch.manual_seed(42)
policy, reference = Policy(), Policy()
reference.load_state_dict(policy.state_dict())
reference.requires_grad_(False)
trainer = GRPO(policy, reference)
for i in range(80):
    score = trainer.step(torch.randint(1, 12, (8, 3)))
    if i % 20 == 0:
        print(i, round(score, 3))
