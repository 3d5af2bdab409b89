import torch
import torch.nn as nn
from transformers import ViTConfig, ViTModel


class FineTunedViT(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                           image_size=16, patch_size=4, num_channels=1)
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.vit.requires_grad_(False)
        for name, p in self.vit.named_parameters():
            if "layer.1." in name or "layers.1." in name or name.startswith("layernorm"):
                p.requires_grad_(True)
        self.head = nn.Linear(32, classes)

    def forward(self, pixel_values):
        with torch.no_grad():
            tokens = self.vit(pixel_values=pixel_values).last_hidden_state
        return self.head(tokens[:, 0])


def build_model():
    torch.manual_seed(381)
    return FineTunedViT()


def build_batch():
    g = torch.Generator().manual_seed(382)
    label = torch.randint(0, 4, (20,), generator=g)
    return torch.randn(20, 1, 16, 16, generator=g) + label.view(-1, 1, 1, 1), label


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
