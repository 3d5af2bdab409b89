import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

IGNORED = -100
PAD = 0


class Melodies(Dataset):
    def __init__(self, count, seed, notes=48):
        generator = torch.Generator().manual_seed(seed)
        jump = torch.randperm(notes, generator=generator)
        self.rows = []
        for _ in range(count):
            length = int(torch.randint(10, 22, (), generator=generator))
            row = [int(torch.randint(0, notes, (), generator=generator))]
            while len(row) < length:
                row.append(int(jump[row[-1]]))
            self.rows.append([note + 2 for note in row])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    width = max(map(len, rows))
    tokens = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), IGNORED)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
        labels[i, : len(row)] = torch.tensor(row)
    return {"input_ids": tokens, "attention_mask": (tokens != PAD).long(), "labels": labels}


def main(epochs=2):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=50, n_positions=24, n_embd=32, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1,
    )
    model = GPT2LMHeadModel(config)
    loader = DataLoader(Melodies(320, 1), batch_size=16, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for step, batch in enumerate(loader):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
