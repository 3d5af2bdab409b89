import argparse
import functools

import torch
from transformers import LlamaConfig, LlamaForCausalLM

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute", choices=PRECISIONS, default="bf16")
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    return parser.parse_args()


def build(options):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2,
    )
    model = LlamaForCausalLM(config)
    return model.to(PRECISIONS[options.compute])


def warmup(step, length):
    return min(1.0, (step + 1) / length)


def tokens(generator):
    start = torch.randint(0, 64, (8, 1), generator=generator)
    return (start + 11 * torch.arange(24)) % 64


def main(options):
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(warmup, length=options.warmup))
    generator = torch.Generator().manual_seed(1)
    for step in range(options.steps):
        batch = tokens(generator)
        with torch.autocast("cpu", PRECISIONS[options.compute]):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            print(step, float(loss))


if __name__ == "__main__":
    main(parse())
