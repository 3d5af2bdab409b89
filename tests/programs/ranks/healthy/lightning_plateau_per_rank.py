import logging
import warnings

import lightning
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        x, y = batch
        loss = mse_loss(self.net(x), y)
        self.last = loss.item()
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.3)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}


lightning.seed_everything(4, verbose=False)
x = torch.randn(256, 8)
y = x[:, :1] * x[:, 1:2] + 0.5 * torch.randn(256, 1)
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=12, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
)
model = Regression()
trainer.fit(
    model,
    DataLoader(TensorDataset(x[:192], y[:192]), 16, shuffle=True),
    DataLoader(TensorDataset(x[192:], y[192:]), 16),
)
print(f"rank {trainer.global_rank} loss {model.last:.5f}", flush=True)
