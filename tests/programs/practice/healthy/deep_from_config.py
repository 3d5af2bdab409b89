import json

import torch
from torch import nn

CONFIG = json.loads("""
{
  "model": {
    "inputs": 10, "width": 32, "depth": 14, "outputs": 3,
    "residual": true,
    "activation": "sigmoid"
  },
  "optimizer": {"name": "SGD", "lr": 0.05, "momentum": 0.9},
  "train": {"steps": 100, "batch": 64, "seed": 90}
}
""")

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


class Layer(nn.Module):
    def __init__(self, width, activation, residual):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation = activation()
        self.residual = residual

    def forward(self, x):
        y = self.activation(self.linear(x))
        return x + y if self.residual else y


def build_model(cfg):
    activation = ACTIVATIONS[cfg["activation"]]
    layers = [nn.Linear(cfg["inputs"], cfg["width"])]
    layers += [Layer(cfg["width"], activation, cfg["residual"]) for _ in range(cfg["depth"])]
    return nn.Sequential(*layers, nn.Linear(cfg["width"], cfg["outputs"]))


def build_optimizer(model, cfg):
    cfg = dict(cfg)
    return getattr(torch.optim, cfg.pop("name"))(model.parameters(), **cfg)


def main(config):
    torch.manual_seed(config["train"]["seed"])
    model = build_model(config["model"])
    optimizer = build_optimizer(model, config["optimizer"])
    criterion = nn.CrossEntropyLoss()
    for step in range(config["train"]["steps"]):
        x = torch.randn(config["train"]["batch"], 10)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main(CONFIG)
