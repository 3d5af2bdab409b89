import logging
import warnings

import lightning as L
import torch
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class MultiHeadRegressor(L.LightningModule):
    def __init__(self, n_features=12, width=32, n_heads=3, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Linear(n_features, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.heads = nn.ModuleList([nn.Linear(width, 1) for _ in range(n_heads)])

    def forward(self, x):
        h = self.encoder(x)
        return torch.cat([head(h) for head in self.heads], dim=-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.smooth_l1_loss(self(x), y)
        self.log("train_loss", loss, prog_bar=False)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def data():
    x = torch.randn(640, 12)
    y = torch.stack([x[:, 0] * x[:, 1], x[:, 2].sin(), x[:, 3:6].prod(-1)], 1)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True)


L.seed_everything(11)
model = MultiHeadRegressor()
trainer = L.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, data())
print(trainer.callback_metrics)
