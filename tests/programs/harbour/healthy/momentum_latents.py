"""Predict the latents of a momentum teacher from a masked view."""

import copy
import logging

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LatentPrediction(lightning.LightningModule):
    def __init__(self, inputs=24, width=32, decay=0.99):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(inputs, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))
        self.teacher = copy.deepcopy(self.student)
        self.predictor = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.decay = decay

    @torch.no_grad()
    def targets(self, x):
        latents = self.teacher(x)
        return F.layer_norm(latents, latents.shape[-1:])

    def training_step(self, batch, index):
        (x,) = batch
        mask = (torch.rand_like(x) > 0.5).float()
        predicted = self.predictor(self.student(x * mask))
        return F.smooth_l1_loss(predicted, self.targets(x))

    def on_train_batch_end(self, outputs, batch, index):
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
                slow.lerp_(fast, 1 - self.decay)

    def configure_optimizers(self):
        return torch.optim.AdamW([*self.student.parameters(), *self.predictor.parameters()], lr=1e-3)


if __name__ == "__main__":
    lightning.seed_everything(1, verbose=False)
    data = torch.randn(640, 8) @ torch.randn(8, 24)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LatentPrediction(), DataLoader(TensorDataset(data), batch_size=32, shuffle=True))
