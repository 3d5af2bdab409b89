from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2Model


@dataclass
class PPOConfig:
    vocabulary: int = 20
    prompt: int = 3
    response: int = 6
    rollouts: int = 24
    minibatch: int = 12
    inner_epochs: int = 3
    iterations: int = 4
    clip: float = 0.2
    value_weight: float = 0.2
    lr: float = 1e-3


class ActorCritic(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.body = GPT2Model(
            GPT2Config(
                vocab_size=config.vocabulary,
                n_positions=16,
                n_embd=32,
                n_layer=2,
                n_head=4,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
        self.policy = nn.Linear(32, config.vocabulary, bias=False)
        self.value = nn.Linear(32, 1)

    def forward(self, ids):
        hidden = self.body(ids).last_hidden_state
        return self.policy(hidden), self.value(hidden).squeeze(-1)


@dataclass
class Rollout:
    ids: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor

    def shuffled(self, size):
        for rows in torch.randperm(len(self.ids)).split(size):
            yield Rollout(
                self.ids[rows], self.log_probs[rows], self.values[rows], self.returns[rows]
            )


class PPO:
    def __init__(self, config):
        self.config = config
        self.model = ActorCritic(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)

    def evaluate(self, ids):
        logits, values = self.model(ids)
        start = self.config.prompt - 1
        log_probs = F.log_softmax(logits[:, start:-1], dim=-1)
        taken = ids[:, self.config.prompt :].unsqueeze(-1)
        return log_probs.gather(-1, taken).squeeze(-1), values[:, start:-1]

    def reward(self, ids):
        response = ids[:, self.config.prompt :]
        return (response % 2 == 0).float().mean(1)

    @torch.no_grad()
    def collect(self):
        config = self.config
        ids = torch.randint(0, config.vocabulary, (config.rollouts, config.prompt))
        for _ in range(config.response):
            probabilities = self.model(ids)[0][:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
        log_probs, values = self.evaluate(ids)
        returns = self.reward(ids).unsqueeze(1).expand_as(values)
        return Rollout(ids, log_probs, values, returns)

    def old_log_probs(self, batch):
        return batch.log_probs

    def loss(self, batch):
        log_probs, values = self.evaluate(batch.ids)
        advantages = batch.returns - batch.values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        ratio = torch.exp(log_probs - self.old_log_probs(batch))
        clipped = ratio.clamp(1 - self.config.clip, 1 + self.config.clip)
        policy = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        return policy + self.config.value_weight * F.mse_loss(values, batch.returns)

    def iterate(self):
        rollout = self.collect()
        for _ in range(self.config.inner_epochs):
            for batch in rollout.shuffled(self.config.minibatch):
                loss = self.loss(batch)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
        return self.reward(rollout.ids).mean().item()


def main():
    torch.manual_seed(19)
    agent = PPO(PPOConfig())
    for iteration in range(agent.config.iterations):
        print(iteration, agent.iterate())


if __name__ == "__main__":
    main()
