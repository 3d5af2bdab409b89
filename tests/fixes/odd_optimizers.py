"""Optimizers and operations whose gradients are wrong, formatted in many ways."""

from tests.fixes.odd_program import CLASS, CLASSES, HEADER, Program, adding_to

PROGRAMS: list[Program] = []
add = adding_to(PROGRAMS)


def listed(name, parameters, *added, before=""):
    text = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
    def forward(self, x): return self.head(self.body(x).tanh())
def build_model(): return Net()
def build_optimizer(model):
    {before}return torch.optim.SGD({parameters}, lr=.01)
"""
    add("GS215", name, text, *added, around=HEADER + CLASSES)


listed(
    "sum", "list(model.head.parameters()) + list(model.parameters())",
    "return torch.optim.SGD(list(model.parameters()), lr=.01)",
)  # fmt: skip
listed(
    "whole_first", "params=list(model.parameters()) + list(model.head.parameters())",
    "return torch.optim.SGD(params=list(model.parameters()), lr=.01)",
)  # fmt: skip
listed(
    "starred", "[*model.parameters(), *model.head.parameters(),]",
    "return torch.optim.SGD([*model.parameters(),], lr=.01)",
)  # fmt: skip
listed(
    "chain", "chain(model.head.parameters(), model.parameters())",
    "from itertools import chain; return torch.optim.SGD(chain(model.parameters()), lr=.01)",
    before="from itertools import chain; ",
)  # fmt: skip
listed(
    "variable", "weights",
    "weights = list(model.parameters())",
    before="weights = list(model.body.parameters()) + list(model.parameters())\n    ",
)  # fmt: skip
listed(
    "comprehension", "[p for m in model.modules() for p in m.parameters()]",
    "return torch.optim.SGD("
    "list(dict.fromkeys([p for m in model.modules() for p in m.parameters()])), lr=.01)",
)  # fmt: skip
listed("variable_changed", "weights", None,
    before="weights = list(model.parameters()); weights += model.head.parameters()\n    ",
)  # fmt: skip
listed("group", "[{'params': [*model.parameters(), model.head.bias]}]", None)


def distance(name, body, *added, before="", model="model = nn.Linear(4, 4)"):
    text = f"""
{before}def build_batch():
    x = torch.randn(8, 4); x[3] = 0
    return x, torch.zeros(8)
{model}
with torch.no_grad(): model.bias.zero_()
def loss_fn(output, target):
    {body}
"""
    add("GS103", name, text, *added, around=HEADER)


distance(
    "root", "return torch.sqrt(output.pow(2).sum(-1)).mean()",
    "return torch.sqrt(output.pow(2).sum(-1) + 1e-8).mean()",
)  # fmt: skip
distance(
    "method", "d = (output * output).sum(1).sqrt(); return d.mean()",
    "d = ((output * output).sum(1) + 1e-8).sqrt(); return d.mean()",
)  # fmt: skip
distance(
    "sum_under_the_root", "return (output[:, 0]**2 + output[:, 1]**2).sqrt().mean()",
    "return (output[:, 0]**2 + output[:, 1]**2 + 1e-8).sqrt().mean()",
)  # fmt: skip
distance(
    "power", "return (((output ** 2).sum(-1)) ** .5).mean()",
    "return (((output ** 2).sum(-1) + 1e-8) ** .5).mean()",
)  # fmt: skip
distance(
    "function_of_power", "return torch.pow(output.square().sum(-1), exponent=0.5).mean()",
    "return torch.pow(output.square().sum(-1) + 1e-8, exponent=0.5).mean()",
)  # fmt: skip
distance(
    "many_lines",
    "return torch.sqrt(\n        output.square()  # squares\n        .sum(-1)\n    ).mean()",
    ".sum(-1) + 1e-8",
)  # fmt: skip
distance(
    "chosen_afterwards",
    "s = output.square().sum(-1)\n    return torch.where(s > 0, torch.sqrt(s), s).mean()",
    "return torch.where(s > 0, torch.sqrt(torch.where(s > 0, s, 1.0)), s).mean()",
)  # fmt: skip
distance(
    "division_chosen_afterwards",
    "s = output.abs().sum(-1)\n    return torch.where(s > 0, 1 / s, s).mean()",
    "return torch.where(s > 0, 1 / torch.where(s > 0, s, 1.0), s).mean()",
)  # fmt: skip
distance(
    "angle", "return torch.acos(output.mean(-1).cos()).mean()",
    "return torch.acos(output.mean(-1).cos().clamp(-1 + 1e-6, 1 - 1e-6)).mean()",
)  # fmt: skip
distance(
    "two_roots",
    "return (output.square().sum(-1).sqrt() + output[:, :2].square().sum(-1).sqrt()).mean()",
    None,
)  # fmt: skip
distance(
    "root_in_another_function", "return length(output).mean()",
    "def length(x): return torch.sqrt((x * x).sum(-1) + 1e-8)",
    before="def length(x): return torch.sqrt((x * x).sum(-1))\n",
)  # fmt: skip


HEADS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
    def forward(self, x): return self.head(self.body(x).tanh())
def build_model(): return Net()
"""


def late(rule, name, lines, *added):
    body = "".join(f"    {line}\n" for line in lines)
    text = f"{HEADS}def build_optimizer(model):\n{body}"
    add(rule, name, text, *added, around=HEADER + CLASSES)


MADE = "opt = torch.optim.SGD(model.parameters(), lr=.1)"
HEAD = "model.head = nn.Linear(4, 3)"
late("GS206", "replaced", [MADE, "", "# three classes", HEAD, "return opt"],
    MADE,
)  # fmt: skip
late("GS206", "used_between", [MADE, "print(opt)", HEAD, "return opt"],
    HEAD,
)  # fmt: skip
late("GS206", "one_line", [f"{MADE}; model.head = nn.Linear(4, 3); return opt"], None)
late("GS206", "in_a_branch", [MADE, "if True:", "    model.head = nn.Linear(4, 3)", "return opt"],
    'opt.add_param_group({"params": model.head.parameters()})',
)  # fmt: skip
DEEPER = "model.body = nn.Sequential(model.body, nn.Linear(4, 4))"
late("GS205", "added", [MADE, DEEPER, "return opt"], DEEPER,
)  # fmt: skip
late("GS205", "first_of_two", ["return torch.optim.SGD(model.head.parameters(), lr=.1)"],
    "return torch.optim.SGD(model.parameters(), lr=.1)",
)  # fmt: skip


def level(rule, name, make, forward, *added, around=HEADER + CLASSES):
    made = "".join(f"        {line}\n" for line in make)
    text = f"{CLASS}{made}    def forward(self, x):\n        {forward}\nmodel = Net()\n"
    add(rule, name, "torch.manual_seed(0)\n" + text, *added, around=around)


DEEP = [
    "self.deep = nn.ModuleList(nn.Linear(4, 4) for _ in range(20))",
    "self.fc = nn.Linear(4, 3)",
]
THROUGH = "for layer in self.deep: x = {}\n        return self.fc(x)"
level("GS101", "initialisation",
    [*DEEP, "for d in self.deep: nn.init.normal_( d.weight, std = 3. )  # wide"],
    THROUGH.format("layer(x)"),
    "for d in self.deep: nn.init.orthogonal_( d.weight )  # wide",
)  # fmt: skip
level("GS101", "initialisation_by_its_name",
    [*DEEP, "for d in self.deep: normal_(d.weight, std=3.)"], THROUGH.format("layer(x)"), None,
    around=HEADER + "from torch.nn.init import normal_\n" + CLASSES,
)  # fmt: skip
level("GS102", "two_activations", DEEP, THROUGH.format("torch.tanh(layer(x).sigmoid())"), None)


def cut(name, forward, *added, **further):
    text = (
        f"{CLASS}        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)\n"
        "        self.fc = nn.Linear(4, 3)\n    def forward(self, x):\n"
        f"        {forward}\nmodel = Net()\n"
    )
    add("GS201", name, text, *added, around=HEADER + CLASSES, **further)


cut("detach", "return self.fc(self.a(x).detach())", "return self.fc(self.a(x))")
cut(
    "detach_of_a_sum", "return self.fc((self.a(x) + x).detach() * 2)",
    "return self.fc((self.a(x) + x) * 2)",
)  # fmt: skip
cut("data", "h = self.a(x).data; return self.fc(h)", "h = self.a(x); return self.fc(h)")
cut(
    "copies", "return self.fc(torch.tensor([r.sum() for r in self.a(x)])[:, None] + x)",
    "return self.fc(torch.stack([r.sum() for r in self.a(x)])[:, None] + x)",
)  # fmt: skip
cut(
    "two_cuts", "return self.fc(self.a(x).detach() + self.b(x).detach())",
    "return self.fc(self.a(x) + self.b(x))",
)  # fmt: skip
cut(
    "two_data", "h = (self.a( x ).data - 2*self.b(x) .data); return self.fc(h)",
    "h = (self.a( x ) - 2*self.b(x)); return self.fc(h)",
)  # fmt: skip
cut(
    "numpy_function",
    "import numpy as np; h = torch.from_numpy(np.tanh(np.exp(self.a(x).detach().numpy())))\n"
    "        return self.fc(h)",
    "import numpy as np; h = torch.tanh(torch.exp(self.a(x)))",
)
cut(
    "numpy_and_back",
    "return self.fc(torch.tensor(self.a(x).detach().cpu().numpy()) * 2)",
    "return self.fc(self.a(x).cpu() * 2)",
)
cut(
    "numpy_axis",
    "import numpy as np; h = np.sort(self.a(x).detach().numpy(), axis=1)\n"
    "        return self.fc(torch.from_numpy(h))",
    None,
)
cut("data_of_an_input", "return self.fc(self.a(x).data + (x * 2).data)", None)
cut("nested_data", "return self.fc(self.b(self.a(x).data).data)", None)
cut("block", "with torch.no_grad(): h = self.a(x)\n        return self.fc(h)", None)
cut("number", "return self.fc(x * self.a(x).mean().item())",
    "return self.fc(x * self.a(x).mean())",
)  # fmt: skip

DIRECTIONS = (
    HEADER
    + """
def build_batch():
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)); x[3] = 0
    return x, torch.randn(8, 4, generator=torch.Generator().manual_seed(2))
def loss_fn(output, target):
    return F.mse_loss(output, target)
def build_model():
    torch.manual_seed(0); return Net()
"""
)


def direction(name, body, *added):
    start = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    start += "        self.f = nn.Linear(4, 4, bias=False)\n    def forward(self, x):\n"
    text = start + "".join(f"        {line}\n" for line in ("x = self.f(x)", *body))
    add("GS103", name, text, *added, around=DIRECTIONS)


direction(
    "division_by_a_norm", ["return torch.nan_to_num(x / x.norm(dim=-1, keepdim=True))"],
    "return torch.nan_to_num(x / (x.norm(dim=-1, keepdim=True) + 1e-8))",
)  # fmt: skip
direction(
    "division_by_a_deviation",
    ["scale = x.std(-1, keepdim=True)  # per row", "return (x/scale).nan_to_num()"],
    "return (x/(scale + 1e-8)).nan_to_num()",
)  # fmt: skip
direction(
    "division_before_where",
    [
        "size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)",
        "return torch.where(size > 0, x / size, torch.zeros_like(x))",
    ],
    "return torch.where(size > 0, x / torch.where(size > 0, size, 1.0), torch.zeros_like(x))",
)  # fmt: skip
direction(
    "root_of_negative_numbers_before_where",
    ["root = torch.sqrt(x - 1)", "return torch.where(x > 1, root, x)"], None,
)  # fmt: skip
direction(
    "negative_root_in_where", ["return torch.where(x > 1, torch.sqrt(x - 1), x)"],
    "return torch.where(x > 1, torch.sqrt(torch.where(x > 1, x - 1, 1.0)), x)",
)  # fmt: skip
direction(
    "division_by_any_sum", ["return torch.nan_to_num(x / x.sum(-1, keepdim=True))"], None
)  # fmt: skip

REPLACED = (
    CLASSES
    + """
def build_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh()); model.head = nn.Linear(8, 5); return model
"""
)
add(
    "GS206", "in_a_condition",
    """
    CLASSES = 3
    def build_optimizer(model):
        optimizer = torch.optim.Adam(model.parameters())
        if CLASSES != 5:
            model.head = nn.Linear(8, CLASSES)
        return optimizer
    """,
    'optimizer.add_param_group({"params": model.head.parameters()})',
    around=HEADER + REPLACED,
)  # fmt: skip
add(
    "GS206", "in_a_condition_of_a_returned_optimizer",
    """
    def build_optimizer(model, classes=3):
        held = {"main": torch.optim.Adam(model.parameters())}
        if classes != 5:
            model.head = nn.Linear(8, classes)
        return held["main"]
    """,
    'held = {"main": torch.optim.Adam(model.parameters())}',
    around=HEADER + REPLACED,
)  # fmt: skip
add(
    "GS201", "item_of_a_scale",
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.f = nn.Linear(4, 3); self.scale = nn.Parameter(torch.zeros(()))
        def forward(self, x): return self.f(x) * self.scale.exp().item()  # temperature
    def build_model(): return Net()
    """,
    "def forward(self, x): return self.f(x) * self.scale.exp()  # temperature",
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS201", "straight_through",
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.f = nn.Linear(4, 3); self.code = nn.Embedding(5, 4)
        def forward(self, x):
            chosen = self.code(torch.cdist(x, self.code.weight).argmin(-1))
            return self.f(x + (chosen - x).detach())
    def build_model(): torch.manual_seed(0); return Net()
    """,
    None,
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS201", "fixed_point",
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.cell = nn.Linear(4, 4); self.f = nn.Linear(4, 3)
        def forward(self, x):
            with torch.no_grad():
                z = x
                for _ in range(5): z = torch.tanh(self.cell(z) + x)
            return self.f(z)
    def build_model(): torch.manual_seed(0); return Net()
    """,
    None,
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS701", "layer_before_nll_loss",
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.f = nn.Linear(4, 3)
            self.softmax = nn.Softmax(dim=1)  # over classes
        def forward(self, x): return self.softmax(self.f(x))
    def build_model(): torch.manual_seed(0); return Net()
    """,
    "self.softmax = nn.LogSoftmax(dim=1)  # over classes",
    around=HEADER + CLASSES.replace("cross_entropy", "nll_loss"),
)  # fmt: skip
add(
    "GS201", "two_losses_that_detach",
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.f = nn.Linear(4, 3); self.code = nn.Embedding(5, 4)
        def forward(self, x):
            chosen = self.code(torch.cdist(x, self.code.weight).detach().argmin(-1))
            z = self.f.weight.mean(0).expand(8, 4)
            return self.f(x) + F.mse_loss(chosen.detach(), z) + F.mse_loss(x, chosen.detach())
    def build_model(): torch.manual_seed(0); return Net()
    """,
    None,
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS201", "array",
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.a = nn.Linear(4, 4); self.f = nn.Linear(4, 3)
        def forward(self, x):
            return self.f(torch.from_numpy(self.a(x).detach().numpy()[:, ::-1].copy()))
    def build_model(): torch.manual_seed(0); return Net()
    """,
    None,
    around=HEADER + CLASSES,
)  # fmt: skip
