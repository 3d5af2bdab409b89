import torch
import torch.nn as nn
import torch.nn.functional as F

RELATIONS = ("cites", "written_by", "published_in")


class RelationalLayer(nn.Module):
    def __init__(self, inputs, outputs, bases=3):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.store = {}
        self._add("basis", (bases, inputs, outputs))
        for relation in RELATIONS:
            self._add(f"mix_{relation}", (bases,))

    def _add(self, name, shape):
        tensor = torch.randn(shape) * (0.5 / shape[-1] ** 0.5)
        self.store[name] = tensor.requires_grad_()

    def weight(self, relation):
        return torch.einsum("b,bio->io", self.store[f"mix_{relation}"], self.store["basis"])

    def forward(self, nodes, edges):
        output = self.own(nodes)
        for relation, (source, target) in edges.items():
            message = nodes[source] @ self.weight(relation)
            count = torch.zeros(len(nodes)).index_add(0, target, torch.ones(len(target)))
            total = torch.zeros_like(output).index_add(0, target, message)
            output = output + total / count.clamp(min=1).unsqueeze(1)
        return output


class RelationalNetwork(nn.Module):
    def __init__(self, inputs=12, width=24, classes=5):
        super().__init__()
        self.first = RelationalLayer(inputs, width)
        self.second = RelationalLayer(width, classes)
        self.dropout = nn.Dropout(0.1)

    def forward(self, nodes, edges):
        return self.second(self.dropout(F.relu(self.first(nodes, edges))), edges)


def build_model():
    torch.manual_seed(6)
    return RelationalNetwork()


def build_batch():
    generator = torch.Generator().manual_seed(13)
    nodes = torch.randn(60, 12, generator=generator)
    edges = {name: tuple(torch.randint(0, 60, (2, 150), generator=generator)) for name in RELATIONS}
    return {"nodes": nodes, "edges": edges, "label": nodes[:, :5].argmax(-1)}


def loss_fn(output, batch):
    return F.cross_entropy(output, batch["label"])
