from dataclasses import dataclass, field

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclass
class ScheduleConfig:
    max_rate: float = 5e-3
    warm_share: float = 0.3
    div_factor: float = 10.0


@dataclass
class ModelConfig:
    features: int = 10
    window: int = 24
    width: int = 32
    horizon: int = 4
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)


class Windows(L.LightningDataModule):
    def __init__(self, config, batch_size=16):
        super().__init__()
        self.config = config
        self.batch_size = batch_size

    def setup(self, stage):
        config = self.config
        length = config.window + config.horizon
        phase = torch.rand(320, 1, config.features) * 6.28
        speed = torch.rand(320, 1, config.features) + 0.2
        time = torch.arange(length).view(1, -1, 1) * 0.3
        series = torch.sin(speed * time + phase) + 0.05 * torch.randn(320, length, config.features)
        data = TensorDataset(series[:, : config.window], series[:, config.window :, 0])
        self.train, self.valid = random_split(data, [256, 64])

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, self.batch_size)


class Forecaster(L.LightningModule):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.reader = nn.GRU(config.features, config.width, batch_first=True)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width),
            nn.GELU(),
            nn.Linear(config.width, config.horizon),
        )

    def forward(self, window):
        _, state = self.reader(window)
        return self.head(self.norm(state[-1]))

    def training_step(self, batch, batch_idx):
        window, future = batch
        loss = F.huber_loss(self(window), future)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        window, future = batch
        self.log("valid_error", F.l1_loss(self(window), future))

    def configure_optimizers(self):
        plan = self.config.schedule
        optimizer = torch.optim.AdamW(self.parameters(), lr=plan.max_rate / plan.div_factor)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=plan.max_rate,
            total_steps=int(self.trainer.estimated_stepping_batches),
            pct_start=plan.warm_share,
            div_factor=plan.div_factor,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": scheduler,
            "interval": "step",
        }


def main():
    L.seed_everything(7, verbose=False)
    config = ModelConfig()
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Forecaster(config), datamodule=Windows(config))
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
