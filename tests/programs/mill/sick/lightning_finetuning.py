import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertModel


def draw(count, vocabulary=60, length=12, classes=4):
    generator = torch.Generator().manual_seed(21)
    ids = torch.randint(4, vocabulary, (count, length), generator=generator)
    labels = (ids[:, :3].sum(1) + ids[:, -1]) % classes
    return TensorDataset(ids, labels)


class SentenceClassifier(L.LightningModule):
    def __init__(self, classes=4, head_rate=1e-3, body_rate=2e-4):
        super().__init__()
        self.save_hyperparameters()
        self.body = BertModel(
            BertConfig(
                vocab_size=60,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=64,
                max_position_embeddings=16,
            ),
            add_pooling_layer=False,
        )
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, classes))

    def forward(self, ids):
        return self.head(self.body(ids).last_hidden_state.mean(1))

    def training_step(self, batch, batch_idx):
        ids, labels = batch
        loss = F.cross_entropy(self(ids), labels)
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        trained = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.AdamW(trained, lr=self.hparams.head_rate)


class Unfreeze(Callback):
    def __init__(self, epoch, batch_norm=False):
        self.epoch = epoch
        self.batch_norm = batch_norm

    def setup(self, trainer, module, stage):
        module.body.requires_grad_(False)

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch != self.epoch:
            return
        module.body.requires_grad_(True)


class History(Callback):
    def __init__(self):
        self.losses = []

    def on_train_epoch_end(self, trainer, module):
        self.losses.append(trainer.callback_metrics["loss"].item())


def main():
    L.seed_everything(0, verbose=False)
    module = SentenceClassifier()
    history = History()
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        callbacks=[Unfreeze(epoch=2), history],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(draw(128), batch_size=16, shuffle=True))
    print(history.losses)


if __name__ == "__main__":
    main()
