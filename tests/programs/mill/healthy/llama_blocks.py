"""Train a small Llama on blocks of a stream of tokens."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class TrainConfig:
    """Settings of a training."""

    block: int = 24
    vocabulary: int = 50
    hidden: int = 48
    batch_size: int = 8
    steps: int = 40
    lr: float = 3e-3
    min_lr: float = 3e-4
    warmup: int = 5
    grad_clip: float = 1.0


class TokenBlocks(Dataset):
    """Blocks of a fixed length from one long stream."""

    def __init__(self, stream: Tensor, block: int) -> None:
        """Keep the stream."""
        self.stream = stream
        self.block = block

    def __len__(self) -> int:
        """Count the blocks."""
        return len(self.stream) - self.block - 1

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Give the tokens of a block and its labels."""
        ids = self.stream[index : index + self.block]
        labels = self.stream[index : index + self.block]
        return {"input_ids": ids, "labels": labels}


def make_stream(vocabulary: int, length: int) -> Tensor:
    """Draw a stream in which each token mostly follows from the one before."""
    successor = torch.randperm(vocabulary)
    tokens = [0]
    for noise in torch.rand(length).tolist():
        follow = successor[tokens[-1]].item()
        tokens.append(follow if noise < 0.9 else int(noise * 1e4) % vocabulary)
    return torch.tensor(tokens)


class CosineRate:
    """A rate that warms up and follows a cosine."""

    def __init__(self, config: TrainConfig) -> None:
        """Keep the settings."""
        self.config = config

    def __call__(self, step: int) -> float:
        """Give the rate of a step."""
        config = self.config
        if step < config.warmup:
            return config.lr * (step + 1) / config.warmup
        share = (step - config.warmup) / max(1, config.steps - config.warmup)
        return config.min_lr + 0.5 * (config.lr - config.min_lr) * (1 + math.cos(math.pi * share))


def build_model(config: TrainConfig) -> LlamaForCausalLM:
    """Build a Llama at random initialisation."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            intermediate_size=2 * config.hidden,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            use_cache=False,
        )
    )


def main() -> None:
    """Train."""
    torch.manual_seed(1337)
    config = TrainConfig()
    model = build_model(config)
    dataset = TokenBlocks(make_stream(config.vocabulary, 3000), config.block)
    sampler = RandomSampler(dataset, num_samples=config.steps * config.batch_size)
    loader = DataLoader(dataset, batch_size=config.batch_size, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.95))
    rate = CosineRate(config)
    for step, batch in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            print(f"{step:4d} {loss.item():.4f}")


if __name__ == "__main__":
    main()
