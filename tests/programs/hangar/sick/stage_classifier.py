import torch
from transformers import DistilBertConfig, DistilBertForMaskedLM, DistilBertForSequenceClassification


def small_config(**extra):
    return DistilBertConfig(
        vocab_size=120, dim=32, hidden_dim=64, n_layers=2, n_heads=2, max_position_embeddings=32, **extra
    )


def sentences(count, generator):
    label = torch.randint(0, 4, (count,), generator=generator)
    tokens = torch.randint(5, 120, (count, 16), generator=generator)
    marks = 10 + 20 * label.unsqueeze(1) + torch.randint(0, 10, (count, 5), generator=generator)
    tokens[:, :5] = marks
    return tokens, label


def pretrain(steps, generator):
    model = DistilBertForMaskedLM(small_config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(steps):
        tokens, _ = sentences(16, generator)
        hidden = torch.rand(tokens.shape, generator=generator) < 0.2
        loss = model(input_ids=tokens.masked_fill(hidden, 4), labels=tokens.masked_fill(~hidden, -100)).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return model


def probe(pretrained):
    model = DistilBertForSequenceClassification(small_config(num_labels=4, seq_classif_dropout=0.0))
    model.distilbert.load_state_dict(pretrained.distilbert.state_dict())
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("classifier")
    return model


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(7)
    model = probe(pretrain(30, generator))
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=5e-3)
    model.train()
    for step in range(50):
        tokens, label = sentences(32, generator)
        output = model(input_ids=tokens, labels=label)
        optimizer.zero_grad(set_to_none=True)
        output.loss.backward()
        optimizer.step()
        if step % 10 == 0:
            accuracy = (output.logits.argmax(-1) == label).float().mean()
            print(f"{step} loss {output.loss.item():.3f} accuracy {accuracy.item():.2f}")


if __name__ == "__main__":
    main()
