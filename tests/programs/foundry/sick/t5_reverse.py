"""T5 of random weights learns to reverse short strings."""
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration

PAD, EOS = 0, 1


class Reversals(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = [
            torch.randint(2, 24, (int(torch.randint(2, 15, (1,), generator=g)),), generator=g) for _ in range(n)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.cat([row, torch.tensor([EOS])]), torch.cat([row.flip(0), torch.tensor([EOS])])


def collate(pairs):
    sources, targets = zip(*pairs)
    input_ids = pad_sequence(sources, batch_first=True, padding_value=PAD)
    labels = pad_sequence(targets, batch_first=True, padding_value=PAD)
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long(), "labels": labels}


def build():
    config = T5Config(
        vocab_size=24,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_decoder_layers=1,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
    )
    return T5ForConditionalGeneration(config)


def train(model, loader, optimizer):
    model.train()
    seen = []
    for batch in loader:
        out = model(**batch)
        optimizer.zero_grad()
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append(out.loss.item())
    return sum(seen) / len(seen)


def main():
    torch.manual_seed(104)
    loader = DataLoader(Reversals(160, 1), batch_size=16, shuffle=True, collate_fn=collate)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(2):
        print(f"epoch {epoch}: {train(model, loader, optimizer):.4f}")


if __name__ == "__main__":
    main()
