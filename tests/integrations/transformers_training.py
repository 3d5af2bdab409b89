"""A training with transformers' Trainer; what it imports takes long."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from gradscope.integrations.transformers import GradscopeCallback

__all__ = ["GradscopeCallback"]


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.ids = torch.randint(0, 20, (32, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Tracker(TrainerCallback):
    """Stands for the callbacks of wandb, TensorBoard and others."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


class Detached(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        hidden = model.transformer(inputs["input_ids"]).last_hidden_state.detach()
        return model.lm_head(hidden).square().mean()


def make_trainer(folder, *callbacks, kind=Trainer, **options):
    torch.manual_seed(0)
    config = {"vocab_size": 20, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2}
    net = GPT2LMHeadModel(GPT2Config(**config, bos_token_id=0, eos_token_id=0))
    chosen = {
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_grad_norm": 0.01,
        "logging_steps": 2,
        "save_strategy": "no",
        **options,
    }
    arguments = TrainingArguments(
        output_dir=str(folder), report_to=[], use_cpu=True, disable_tqdm=True, **chosen
    )
    return kind(model=net, args=arguments, train_dataset=Tokens(), callbacks=list(callbacks))
