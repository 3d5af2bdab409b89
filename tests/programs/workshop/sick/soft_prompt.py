import torch
from torch import nn
from transformers import BertConfig, BertModel


class PromptTuned(nn.Module):
    def __init__(self, backbone, n_prompt=4, n_labels=2):
        super().__init__()
        self.backbone = backbone
        dim = backbone.config.hidden_size
        self.prompt = torch.mul(torch.randn(n_prompt, dim), 0.02).requires_grad_()
        self.head = nn.Linear(dim, n_labels)
        for p in self.backbone.parameters():
            p.requires_grad_(False)

    def forward(self, ids):
        words = self.backbone.embeddings.word_embeddings(ids)
        prompt = self.prompt.unsqueeze(0).expand(ids.size(0), -1, -1)
        out = self.backbone(inputs_embeds=torch.cat([prompt, words], dim=1))
        return self.head(out.last_hidden_state[:, 0])


def main():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=32)
    backbone = BertModel(config, add_pooling_layer=False)
    state = {k: v.clone() for k, v in backbone.state_dict().items()}
    backbone.load_state_dict(state)
    model = PromptTuned(backbone)
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    for step in range(40):
        ids = torch.randint(0, 40, (32, 10))
        labels = (ids < 20).sum(1).gt(5).long()
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))
    print("trainable", sum(p.numel() for p in model.parameters() if p.requires_grad))


main()
