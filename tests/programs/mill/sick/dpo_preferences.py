import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class DPOConfig:
    beta: float = 0.2
    lr: float = 1e-3
    batch_size: int = 8
    epochs: int = 3
    max_grad_norm: float = 1.0
    label_smoothing: float = 0.0


class Preferences(Dataset):
    def __init__(self, count, prompt=4, answer=5, vocabulary=40):
        self.prompt = prompt
        self.prompts = torch.randint(1, vocabulary, (count, prompt))
        answers = torch.randint(1, vocabulary // 2, (2, count, answer))
        self.chosen = torch.cat([self.prompts, 2 * answers[0]], dim=1)
        self.rejected = torch.cat([self.prompts, 2 * answers[1] - 1], dim=1)

    def __len__(self):
        return len(self.prompts)

    def __getitem__(self, index):
        return self.chosen[index], self.rejected[index]


class DPOTrainer:
    def __init__(self, model, config, dataset, reference=None):
        self.model = model
        self.config = config
        self.dataset = dataset
        self.reference = reference or self.create_reference(model)
        self.reference.eval()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)

    @staticmethod
    def create_reference(model):
        return model

    def log_probability(self, model, ids):
        logits = model(input_ids=ids).logits[:, :-1]
        taken = ids[:, 1:].unsqueeze(-1)
        log_probs = logits.log_softmax(-1).gather(-1, taken).squeeze(-1)
        return log_probs[:, self.dataset.prompt - 1 :].sum(1)

    def rewards(self, ids):
        policy = self.log_probability(self.model, ids)
        with torch.no_grad():
            reference = self.log_probability(self.reference, ids)
        return self.config.beta * (policy - reference)

    def loss(self, chosen, rejected):
        margin = self.rewards(chosen) - self.rewards(rejected)
        smoothing = self.config.label_smoothing
        loss = -F.logsigmoid(margin) * (1 - smoothing) - F.logsigmoid(-margin) * smoothing
        return loss.mean(), (margin > 0).float().mean()

    def train(self):
        loader = DataLoader(self.dataset, self.config.batch_size, shuffle=True)
        for epoch in range(self.config.epochs):
            accuracies = []
            for chosen, rejected in loader:
                loss, accuracy = self.loss(chosen, rejected)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(
                    self.model.parameters(), self.config.max_grad_norm
                )
                self.optimizer.step()
                self.optimizer.zero_grad()
                accuracies.append(accuracy.item())
            print(epoch, loss.item(), sum(accuracies) / len(accuracies))


def build_model():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=32,
        )
    )


def main():
    torch.manual_seed(41)
    DPOTrainer(build_model(), DPOConfig(), Preferences(96)).train()


if __name__ == "__main__":
    main()
