"""The training of the picture of a run: in one step the loss is summed, not averaged."""

import healthy_gpt
import torch
from torch import Tensor
from torch.nn import functional


def main() -> None:
    """Train the language model of the samples for a while."""
    torch.manual_seed(0)
    model = healthy_gpt.build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    text = torch.tensor([ord(character) for character in healthy_gpt.TEXT])

    def batch() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - healthy_gpt.CONTEXT, (8,)).tolist()
        pieces = torch.stack([text[start : start + healthy_gpt.CONTEXT + 1] for start in starts])
        return pieces[:, :-1], pieces[:, 1:]

    for step in range(60):
        inputs, targets = batch()
        reduction = "sum" if step == 40 else "mean"
        logits = model(inputs).flatten(0, 1)
        loss = functional.cross_entropy(logits, targets.flatten(), reduction=reduction)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
