import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaForCausalLM


def extended(layer, size):
    old = layer.weight.detach()
    if isinstance(layer, nn.Embedding):
        larger = nn.Embedding(size, old.size(1))
    else:
        larger = nn.Linear(old.size(1), size, bias=False)
    with torch.no_grad():
        larger.weight.copy_(old.mean(0))
        larger.weight[: len(old)] = old
    return larger


class Vocabulary:
    def __init__(self, size):
        self.size = size
        self.special = {}

    def add_special_tokens(self, names):
        for name in names:
            self.special[name] = self.size
            self.size += 1
        return len(names)


class FineTuner:
    def __init__(self, model, vocabulary, learning_rate=2e-3):
        self.model = model
        self.vocabulary = vocabulary
        self.learning_rate = learning_rate
        self.optimizer = None

    def setup_optimizer(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.learning_rate)

    def setup_chat(self):
        self.vocabulary.add_special_tokens(["<|user|>", "<|assistant|>", "<|end|>"])
        size = self.vocabulary.size
        self.model.set_input_embeddings(extended(self.model.get_input_embeddings(), size))
        self.model.set_output_embeddings(extended(self.model.get_output_embeddings(), size))
        self.model.config.vocab_size = size

    def prepare(self):
        self.setup_optimizer()
        self.setup_chat()

    def batch(self, generator):
        special = self.vocabulary.special
        start = torch.randint(0, 60, (12, 1), generator=generator)
        body = (start + 7 * torch.arange(14)) % 60
        edge = torch.ones(12, 1, dtype=torch.long)
        return torch.cat(
            [edge * special["<|user|>"], body[:, :4], edge * special["<|assistant|>"], body[:, 4:], edge * special["<|end|>"]],
            dim=1,
        )

    def fit(self, steps):
        self.prepare()
        generator = torch.Generator().manual_seed(3)
        for step in range(steps):
            tokens = self.batch(generator)
            loss = self.model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.model.zero_grad()
            if step % 10 == 0:
                print(step, loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
    )
    FineTuner(LlamaForCausalLM(config), Vocabulary(60)).fit(40)
