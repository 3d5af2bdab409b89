"""A small training with the real library of Lightning, whose import takes seconds."""

import lightning as L  # noqa: N812 - its usual name
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gradscope.integrations.lightning import GradscopeCallback

__all__ = ["GradscopeCallback", "L", "Net", "fit"]


class Net(L.LightningModule):
    """Measures its own norms where Lightning says they are unscaled and not clipped."""

    def __init__(self, *, is_cut=False, fails_at=None):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 3), nn.Linear(3, 1)
        self.is_cut, self.fails_at = is_cut, fails_at
        self.norms = []

    def training_step(self, batch, batch_idx):
        if batch_idx == self.fails_at:
            raise RuntimeError("no more batches")
        x, y = batch
        hidden = self.encoder(x)
        if self.is_cut:
            hidden = hidden.detach()
        return nn.functional.mse_loss(self.head(hidden), y)

    def on_before_optimizer_step(self, optimizer):
        gradients = [one.grad for one in self.parameters() if one.grad is not None]
        self.norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(callback, folder, *, ckpt=None, **options):
    torch.manual_seed(0)
    net = Net(is_cut=options.pop("is_cut", False), fails_at=options.pop("fails_at", None))
    data = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 1)), 4)
    trainer = L.Trainer(
        accelerator="cpu",
        callbacks=[] if callback is None else [callback],
        **{
            "max_epochs": 2,
            "log_every_n_steps": 1,
            "logger": CSVLogger(folder, name=""),
            "enable_checkpointing": False,
            **options,
        },
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(net, data, ckpt_path=ckpt)
    return net, trainer
