"""Train the two towers of a small CLIP with a learned temperature."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPConfig, CLIPModel

TEXT = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
}


class Captions(Dataset):
    """Images of coloured patches and the tokens that name the colours."""

    def __init__(self, count: int) -> None:
        """Draw the pairs."""
        self.colours = torch.rand(count, 4, 3)

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self.colours)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Give an image and its caption."""
        colours = self.colours[index]
        image = colours.view(2, 2, 3).permute(2, 0, 1)
        image = image.repeat_interleave(8, 1).repeat_interleave(8, 2)
        names = (colours * 4).long() @ torch.tensor([16, 4, 1]) % 56 + 3
        caption = torch.cat([torch.tensor([1]), names, torch.tensor([2])])
        return image + 0.05 * torch.randn_like(image), caption


@dataclass
class ContrastiveLoss:
    """The loss of CLIP in both directions."""

    smoothing: float = 0.0
    max_scale: float = 100.0

    def logits(self, images: Tensor, texts: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Give the similarities of images with texts, and of texts with images."""
        images, texts = F.normalize(images, dim=-1), F.normalize(texts, dim=-1)
        scale = scale.exp().clamp(max=self.max_scale)
        return scale * images @ texts.t(), scale * texts @ images.t()

    def __call__(self, images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
        """Average the cross-entropies of both directions."""
        targets = torch.arange(len(images), device=images.device)
        per_image, per_text = self.logits(images, texts, scale)
        one = F.cross_entropy(per_image, targets, label_smoothing=self.smoothing)
        other = F.cross_entropy(per_text, targets, label_smoothing=self.smoothing)
        return 0.5 * (one + other)


def build_model() -> CLIPModel:
    """Build a CLIP at random initialisation."""
    return CLIPModel(CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=24))


def embed(model: CLIPModel, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
    """Project the outputs of both towers."""
    vision = model.vision_model(pixel_values=images).pooler_output
    text = model.text_model(input_ids=captions).pooler_output
    return model.visual_projection(vision), model.text_projection(text)


def parameter_groups(model: nn.Module, decay: float) -> list[dict]:
    """Exempt vectors and the temperature from decay."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2)
    model = build_model()
    loader = DataLoader(Captions(128), batch_size=16, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=args.lr, betas=(0.9, 0.98))
    criterion = ContrastiveLoss()
    for epoch in range(args.epochs):
        for images, captions in loader:
            loss = criterion(*embed(model, images, captions), model.logit_scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), model.logit_scale.exp().item())


if __name__ == "__main__":
    main()
