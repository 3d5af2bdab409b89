import warnings

import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, Trainer, TrainingArguments

warnings.filterwarnings("ignore")
torch.manual_seed(0)

config = dict(vocab_size=60, n_positions=16, n_embd=32, n_layer=2, n_head=2, pad_token_id=0)
pretrained = GPT2LMHeadModel(GPT2Config(**config))

model = GPT2ForSequenceClassification(GPT2Config(num_labels=2, **config))
model.transformer.load_state_dict(pretrained.transformer.state_dict())

for name, param in model.named_parameters():
    if "score" not in name and "h.1" not in name:
        param.requires_grad = False


class Sentences(torch.utils.data.Dataset):
    def __init__(self, n=256):
        g = torch.Generator().manual_seed(1)
        self.ids = torch.randint(1, 60, (n, 12), generator=g)
        self.labels = (self.ids[:, -4:] > 30).sum(1).gt(2).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(12, dtype=torch.long), "labels": self.labels[i]}


head_before = model.score.weight.detach().clone()
args = TrainingArguments(
    output_dir="/tmp/workshop_hf_head", max_steps=40, per_device_train_batch_size=16, learning_rate=5e-3,
    logging_steps=10, report_to=[], save_strategy="no", use_cpu=True, seed=0, disable_tqdm=True,
)
trainer = Trainer(model=model, args=args, train_dataset=Sentences())
trainer.train()
print("head moved by", (model.score.weight - head_before).norm().item())
