import logging
import warnings

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class TwoTowers(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))
        self.text = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 16))

    def training_step(self, batch, index):
        image, text = batch
        a = F.normalize(self.image(image), dim=-1)
        b = F.normalize(self.text(text), dim=-1)
        images, texts = (self.all_gather(one).flatten(0, 1) for one in (a, b))
        own = torch.arange(len(a)) + self.global_rank * len(a)
        loss = F.cross_entropy(a @ texts.T / 0.2, own) + F.cross_entropy(b @ images.T / 0.2, own)
        self.last = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


lightning.seed_everything(4, verbose=False)
z = torch.randn(320, 6)
image = torch.tanh(z @ torch.randn(6, 12)) + 0.05 * torch.randn(320, 12)
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
model = TwoTowers()
trainer.fit(model, DataLoader(TensorDataset(image, z), 16, shuffle=True))
print(f"rank {trainer.global_rank} loss {model.last:.5f}", flush=True)
