import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LitAutoencoder(L.LightningModule):
    def __init__(self, features=24, code=6, lr=0.05):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, code))
        self.decoder = nn.Sequential(nn.Linear(code, 32), nn.ReLU(), nn.Linear(32, features))
        self.lr = lr

    def training_step(self, batch, batch_idx):
        (x,) = batch
        optimizer = self.optimizers()
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    L.seed_everything(7, verbose=False)
    basis = torch.randn(5, 24)
    data = TensorDataset(torch.randn(640, 5) @ basis / 2)
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(LitAutoencoder(), DataLoader(data, batch_size=20, shuffle=True))
