import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.net = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        return x + self.net(self.norm(x))


class TabularNet(nn.Module):
    def __init__(self, features, width, depth, outputs):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(depth)])
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


class TwoTasks(L.LightningModule):
    def __init__(self, features=14, width=32, depth=3, window=4, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.net = TabularNet(features, width, depth, 4)
        self.log_variance = nn.Parameter(torch.zeros(2))

    def loss(self, batch):
        x, value, kind = batch
        output = self.net(x)
        regression = F.mse_loss(output[:, 0], value)
        classification = F.cross_entropy(output[:, 1:], kind)
        losses = torch.stack([regression, classification])
        return (torch.exp(-self.log_variance) * losses + self.log_variance).sum()

    @property
    def is_last(self):
        return (self.trainer.fit_loop.batch_idx + 1) % self.hparams.window == 0

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        scheduler = self.lr_schedulers()
        loss = self.loss(batch) / self.hparams.window
        optimizer.zero_grad()
        self.manual_backward(loss)
        if self.is_last:
            self.clip_gradients(optimizer, 1.0, "norm")
            optimizer.step()
            scheduler.step()
        self.log("loss", loss.detach() * self.hparams.window)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = int(self.trainer.estimated_stepping_batches) // self.hparams.window
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
        return [optimizer], [scheduler]


def draw(count, features):
    x = torch.randn(count, features)
    value = torch.tanh(x @ torch.randn(features))
    kind = (x @ torch.randn(features, 3)).argmax(1)
    return TensorDataset(x, value, kind)


def main():
    L.seed_everything(9, verbose=False)
    loader = DataLoader(draw(512, 14), batch_size=8, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = TwoTasks()
    trainer.fit(module, loader)
    print(trainer.callback_metrics["loss"].item(), module.log_variance.tolist())


if __name__ == "__main__":
    main()
