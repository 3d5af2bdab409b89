"""Programs with a mistake, formatted in many ways, and the edit that a reviewer would accept.

`added` are the lines that the edit adds, without indentation; None if there must be no edit.
"""

from dataclasses import dataclass, field
from textwrap import dedent

HEADER = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
REGRESSION = """
def build_batch():
    return torch.randn(8, 4), torch.randn(8)
def build_model():
    return nn.Linear(4, 1)
"""
CLASSES = """
def build_batch():
    return torch.randn(8, 4), torch.arange(8) % 3
def loss_fn(output, target):
    return F.cross_entropy(output, target)
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of one file, or of several."""

    name: str
    rule: str
    text: str
    added: tuple[str, ...] | None
    encoding: str = "utf-8"
    others: dict[str, str] = field(default_factory=dict)
    """Further files by name."""
    edited: str = ""
    """The file that is edited; empty for the program itself."""
    is_training: bool = False
    """Whether it is a script that trains."""


PROGRAMS: list[Program] = []


def add(rule, name, text, *added, around=HEADER, **further):
    program = around + dedent(text).lstrip("\n")
    PROGRAMS.append(
        Program(
            name=f"{rule.lower()}_{name}",
            rule=rule,
            text=program,
            added=None if added == (None,) else added,
            **further,
        )
    )


def regression(name, text, *added, around=HEADER + REGRESSION, **further):
    add("GS702", name, text, *added, around=around, **further)


regression(
    "lambda", "loss_fn = lambda o, t: ((o - t) ** 2).mean()",
    "loss_fn = lambda o, t: ((o.squeeze(-1) - t) ** 2).mean()",
)  # fmt: skip
regression(
    "one_line", "def loss_fn(o, t): d = o-t; return (d*d).mean()",
    "def loss_fn(o, t): d = o.squeeze(-1)-t; return (d*d).mean()",
)  # fmt: skip
regression(
    "named_arguments", "def loss_fn(o, t):\n    return F.mse_loss(target = t, input = o)",
    "return F.mse_loss(target = t, input = o.squeeze(-1))",
)  # fmt: skip
regression(
    "many_lines",
    """
    def loss_fn(o, t):
        return F.l1_loss(
            o,  # prediction
            t,
        )
    """,
    "o.squeeze(-1),  # prediction",
)
regression(
    "renamed_function",
    "from torch.nn.functional import mse_loss as mse\ndef loss_fn(o, t):\n    return mse(o, t)",
    "return mse(o.squeeze(-1), t)",
)
regression(
    "module_made_and_called", "def loss_fn(o, t):\n    return nn.MSELoss()(o, t)",
    "return nn.MSELoss()(o.squeeze(-1), t)",
)  # fmt: skip
regression(
    "operation", "def loss_fn(o, t):\n    return F.mse_loss(o * 2 + 1, t)",
    "return F.mse_loss((o * 2 + 1).squeeze(-1), t)",
)  # fmt: skip
regression(
    "target_has_more_dimensions",
    "def loss_fn(o, t):\n    return F.mse_loss(o.squeeze(-1), t.unsqueeze(1) + 0)",
    "return F.mse_loss(o.squeeze(-1), (t.unsqueeze(1) + 0).squeeze(-1))",
)
regression(
    "method", "def loss_fn(o, t):\n    return o.sub(t).pow(2).mean()",
    "return o.squeeze(-1).sub(t).pow(2).mean()",
)  # fmt: skip
regression(
    "function_of_torch", "def loss_fn(o, t):\n    return torch.sub(o, t).abs().mean()",
    "return torch.sub(o.squeeze(-1), t).abs().mean()",
)  # fmt: skip
regression(
    "own_loss_with_the_model",
    """
    criterion = nn.SmoothL1Loss()
    def compute_loss(model, batch):
        x, y = batch
        loss = criterion( model(x), y )  # the loss
        return loss
    """,
    "loss = criterion( model(x).squeeze(-1), y )  # the loss",
)
regression(
    "tabs_and_carriage_returns", "def loss_fn(o, t):\r\n\treturn ((o - t)**2).mean()\r\n",
    "return ((o.squeeze(-1) - t)**2).mean()",
)  # fmt: skip
regression(
    "latin_1", "def loss_fn(o, t):\n    return ((o - t)**2).mean()  # carré: é",
    "return ((o.squeeze(-1) - t)**2).mean()  # carré: é",
    around="# -*- coding: latin-1 -*-\n" + HEADER + REGRESSION, encoding="latin-1",
)  # fmt: skip
regression(
    "decorated_method",
    """
    def decorated(f):
        return lambda *a: f(*a)
    class Losses:
        @staticmethod
        @decorated
        def squared(o, t): return F.huber_loss(o, t)
    loss_fn = Losses.squared
    """,
    "def squared(o, t): return F.huber_loss(o.squeeze(-1), t)",
)
regression(
    "in_another_file", "from gs702_losses import squared as loss_fn",
    "return (o.squeeze(-1) - t).square().mean()",
    others={"gs702_losses.py": "def squared(o, t):\n    return (o - t).square().mean()\n"},
    edited="gs702_losses.py",
)  # fmt: skip
regression(
    "two_differences", "def loss_fn(o, t):\n    return ((o - t) ** 2).mean() - (o - 1).mean() * 0",
    None,
)  # fmt: skip
regression("starred", "def loss_fn(o, t):\n    return F.mse_loss(*(o, t))", None)
regression("two_losses", "def loss_fn(o, t): return F.mse_loss(o, t) + F.l1_loss(o, t)", None)
regression("row_and_column", "def loss_fn(o, t):\n    return F.mse_loss(o, t[None] * 1)", None)


def classes(name, text, *added, around=HEADER + CLASSES, **further):
    add("GS701", name, text, *added, around=around, **further)


CLASS = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"

classes(
    "layer_on_one_line",
    "def build_model(): return nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))",
    "def build_model(): return nn.Sequential(nn.Linear(4, 3))",
)
classes(
    "layer_on_its_own_line",
    """
    def build_model():
        return nn.Sequential(
            nn.Linear(4, 3),  # scores
            nn.Softmax(dim=1),  # probabilities
        )
    """,
)
classes(
    "layer_without_last_comma",
    """
    def build_model():
        return nn.Sequential(
            nn.Linear(4, 3),
            nn.Softmax(1))
    """,
    "nn.Linear(4, 3))",
)
classes(
    "renamed_module",
    "from torch import nn as N\nmodel = N.Sequential(N.Linear(4, 3), N.Softmax(1))",
    "model = N.Sequential(N.Linear(4, 3))",
)
classes(
    "attribute",
    CLASS
    + """\
        self.fc, self.softmax = nn.Linear(4, 3), nn.Softmax(dim=1)
    def forward(self, x):
        return self.softmax(self.fc(x))
model = Net()
""",
    "return self.fc(x)",
)
classes(
    "function",
    CLASS
    + """\
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        return F.softmax(
            self.fc(x), dim=1
        )
model = Net()
""",
    "return self.fc(x)",
)
classes(
    "imported_function",
    CLASS
    + """\
        self.fc = nn.Linear(4, 3)
    def forward(self, x): return softmax(self.fc(x), 1)
model = Net()
""",
    "def forward(self, x): return self.fc(x)",
    around=HEADER + "from torch import softmax\n" + CLASSES,
)
classes(
    "layer_made_and_called",
    CLASS
    + """\
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        y = nn.Softmax(dim=-1)(self.fc(x)); return y
model = Net()
""",
    "y = self.fc(x); return y",
)
classes(
    "sum",
    CLASS
    + """\
        self.a = nn.Linear(4, 3); self.b = nn.Linear(4, 3)
    def forward(self, x):
        return (self.a(x) + self.b(x)).softmax(1)
model = Net()
""",
    "return (self.a(x) + self.b(x))",
)
classes(
    "argument_on_several_lines",
    CLASS
    + """\
        self.a = nn.Linear(4, 3); self.b = nn.Linear(4, 3)
    def forward(self, x):
        return torch.softmax(self.a(x) +
                             self.b(x), dim=1)
model = Net()
""",
    "return (self.a(x) +",
    "self.b(x))",
)
LOG = CLASSES.replace("F.cross_entropy", "F.nll_loss")
classes(
    "logarithm_of_a_method",
    CLASS
    + """\
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        return self.fc(x).softmax(dim=1)
model = Net()
""",
    "return self.fc(x).log_softmax(dim=1)",
    around=HEADER + LOG,
)
classes(
    "logarithm_of_a_layer",
    "model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1), nn.Dropout(0.))",
    "model = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(dim=1), nn.Dropout(0.))",
    around=HEADER + LOG,
)
classes(
    "sigmoid",
    """
    def build_batch(): return torch.randn(8, 4), (torch.arange(8) % 2).float()
    class Net(nn.Linear):
        def forward(self, x): return torch.sigmoid(super().forward(x)).squeeze(-1)
    model = Net(4, 1)
    def loss_fn(o, t): return F.binary_cross_entropy_with_logits(o, t)
    """,
    "def forward(self, x): return super().forward(x).squeeze(-1)",
    around=HEADER,
)
classes(
    "in_the_loss",
    """
    model = nn.Linear(4, 3)
    def loss_fn(output, target):
        if output.dim() == 2: output = output.softmax(-1)
        return F.cross_entropy(output, target)
    """,
    "if output.dim() == 2: output = output",
)
classes(
    "probabilities_used_elsewhere",
    CLASS
    + """\
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        probabilities = self.fc(x).softmax(1)
        self.entropy = -(probabilities * probabilities.log()).sum()
        return probabilities
model = Net()
""",
    None,
)
classes(
    "two_on_a_line",
    CLASS
    + """\
        self.a = nn.Linear(4, 3); self.b = nn.Linear(4, 3)
    def forward(self, x):
        return torch.cat([self.a(x[:4]).softmax(1), self.b(x[4:]).softmax(1)])
model = Net()
""",
    None,
)
classes(
    "layer_in_a_list",
    "layers = [nn.Linear(4, 3)]\nlayers += [nn.Softmax(1)]\nmodel = nn.Sequential(*layers)",
    None,
)
classes(
    "ordered_dictionary",
    """
    from collections import OrderedDict
    model = nn.Sequential(OrderedDict([("fc", nn.Linear(4, 3)), ("act", nn.Softmax(1))]))
    """,
    None,
)


def unregistered(name, stored, forward, *added, around=HEADER + CLASSES, make=CLASS, **further):
    body = "".join(f"        {line}\n" for line in stored)
    text = f"{make}{body}    def forward(self, x):\n        {forward}\nmodel = Net()\n"
    add("GS207", name, text, *added, around=around, **further)


FIRST = "self.fc = nn.Linear(4, 3)"
OVER_LIST = "return self.fc(self.inner[1](self.inner[0](x)))"
unregistered(
    "list", [FIRST, "self.inner = [nn.Linear(4, 4), nn.Linear(4, 4)]"], OVER_LIST,
    "self.inner = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])",
)  # fmt: skip
unregistered(
    "list_on_many_lines",
    [FIRST, "self.inner = [", "    nn.Linear(4, 4),  # one", "    nn.Linear(4, 4),", "]"],
    OVER_LIST,
    "self.inner = nn.ModuleList([",
    "])",
)
unregistered(
    "tuple", [FIRST, "self.inner = nn.Linear(4, 4), nn.Linear(4, 4)"], OVER_LIST,
    "self.inner = nn.ModuleList((nn.Linear(4, 4), nn.Linear(4, 4)))",
)  # fmt: skip
unregistered(
    "dictionary",
    [FIRST, "self.inner = {'a': nn.Linear(4, 4), 'b': nn.ReLU()}"],
    "return self.fc(self.inner['b'](self.inner['a'](x)))",
    "self.inner = nn.ModuleDict({'a': nn.Linear(4, 4), 'b': nn.ReLU()})",
)
unregistered(
    "appended",
    [FIRST, "self.inner = []", "for _ in range(2): self.inner.append(nn.Linear(4, 4))"],
    OVER_LIST,
    "self.inner = nn.ModuleList()",
)
unregistered(
    "annotated",
    [FIRST, "self.inner: list[nn.Module] = list(nn.Linear(4, 4) for _ in range(2))"],
    OVER_LIST,
    "self.inner: list[nn.Module] = nn.ModuleList(list(nn.Linear(4, 4) for _ in range(2)))",
)
unregistered(
    "tensor", [FIRST, "self.scale = torch.ones(4, requires_grad=True)"],
    "return self.fc(x * self.scale)",
    "self.scale = nn.Parameter(torch.ones(4))",
)  # fmt: skip
unregistered(
    "computed", [FIRST, "self.scale = nn.Parameter(torch.randn(4)) * 0.02"],
    "return self.fc(x * self.scale)",
    "self.scale = nn.Parameter(torch.randn(4) * 0.02)",
)  # fmt: skip
unregistered(
    "parameters", [FIRST, "self.w = [nn.Parameter(torch.ones(4)) for _ in 'ab']"],
    "return self.fc(x * self.w[0] + self.w[1])",
    "self.w = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in 'ab'])",
)  # fmt: skip
unregistered(
    "renamed_module", ["self.fc = N.Linear(4, 3)", "self.inner = [N.ReLU(), N.Linear(4, 4)]"],
    OVER_LIST,
    "self.inner = N.ModuleList([N.ReLU(), N.Linear(4, 4)])",
    around="import torch, torch.nn as N\nfrom torch.nn import functional as F\n" + CLASSES,
    make=CLASS.replace("nn.Module", "N.Module"),
)  # fmt: skip
unregistered(
    "one_line_of_several",
    [FIRST + "; self.inner = [nn.Linear(4, 4), nn.Linear(4, 4)]; self.n = 2"],
    OVER_LIST,
    FIRST + "; self.inner = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]); self.n = 2",
)
unregistered(
    "no_name_for_it", ["self.fc = Linear(4, 3)", "self.inner = [Linear(4, 4), Linear(4, 4)]"],
    OVER_LIST,
    None,
    around="from torch import arange, randn\nfrom torch.nn import Linear, Module\n"
    "from torch.nn import functional as F\n" + CLASSES.replace("torch.", ""),
    make=CLASS.replace("nn.Module", "Module"),
)  # fmt: skip
unregistered(
    "two_targets",
    [FIRST, "self.inner, self.n = [nn.Linear(4, 4), nn.Linear(4, 4)], 2"],
    OVER_LIST,
    None,
)
unregistered(
    "number_keys", [FIRST, "self.inner = {0: nn.Linear(4, 4), 1: nn.Linear(4, 4)}"], OVER_LIST,
    None,
)  # fmt: skip
unregistered(
    "made_in_the_forward", [FIRST],
    "return self.fc(nn.Linear(4, 4)(x))",
    None,
)  # fmt: skip


def in_place(name, body, *added, **further):
    text = "".join(f"        {line}\n" for line in body)
    program = (
        f"{CLASS}        self.fc = nn.Linear(4, 4); self.out = nn.Linear(4, 3)\n"
        f"    def forward(self, x):\n        h = torch.sigmoid(self.fc(x))\n{text}"
        "        return self.out(h)\nmodel = Net()\n"
    )
    add("GS503", name, program, *added, around=HEADER + CLASSES, **further)


in_place("add", ["h += 1  # shift"], "h = h + 1  # shift")
in_place("scale_by_a_sum", ["h *= x.mean() + 1"], "h = h * (x.mean() + 1)")
in_place("divide_spaced", ["h  /=  2"], "h = h / 2")
in_place("one_line", ["if True: h += 1; h = h * 2"], "if True: h = h + 1; h = h * 2")
in_place("method", ["h.mul_(2)"], "h = h.mul(2)")
in_place("assigned_method", ["h = h.add_(x.mean())"], "h = h.add(x.mean())")
in_place("inplace", ["h = F.relu(h, inplace=True)"], "h = F.relu(h)")
in_place(
    "inplace_in_the_middle", ["h = F.leaky_relu(h, inplace = True, negative_slope=.1)"],
    "h = F.leaky_relu(h, negative_slope=.1)",
)  # fmt: skip
in_place("element", ["h[:, 0] = 0"], "h = h.clone()")
in_place("element_added", ["h[:, 0] += 1"], "h = h.clone()")
in_place("element_one_line", ["if True: h[:, 0] = 0"], "if True: h = h.clone(); h[:, 0] = 0")
in_place(
    "element_on_many_lines", ["h[", "    :, 0", "] = 0"], "h = h.clone()"
)  # fmt: skip
in_place("view", ["row = h[0]", "row += 1"], None)
in_place("view_of_a_method", ["flat = h.view(-1)", "flat.mul_(2)"], None)
in_place("attribute", ["self.h = h", "self.h += 1"], None)
in_place("chained", ["g = h.mul_(2).add(1)", "h = h + g"], None)
in_place("result_unused", ["F.relu(h, inplace=True)"], None)


add(
    "GS503", "helper_that_writes",
    CLASS + """\
        self.fc = nn.Linear(4, 4); self.out = nn.Linear(4, 3)
    def forward(self, x):
        h = torch.sigmoid(self.fc(x))
        shift(h)
        return self.out(h)
def shift(h):
    h += 1
model = Net()
""",
    None,
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS503", "layer",
    CLASS + """\
        self.fc = nn.Linear(4, 4); self.act = nn.ReLU(inplace=True); self.out = nn.Linear(4, 3)
    def forward(self, x):
        h = torch.sigmoid(self.fc(x))
        h = self.act(h)
        return self.out(h)
model = Net()
""",
    "self.fc = nn.Linear(4, 4); self.act = nn.ReLU(); self.out = nn.Linear(4, 3)",
    around=HEADER + CLASSES,
)  # fmt: skip
add(
    "GS503", "layer_whose_result_is_unused",
    CLASS + """\
        self.fc = nn.Linear(4, 4); self.act = nn.ReLU(inplace=True); self.out = nn.Linear(4, 3)
    def forward(self, x):
        h = torch.sigmoid(self.fc(x))
        self.act(h)
        return self.out(h)
model = Net()
""",
    None,
    around=HEADER + CLASSES,
)  # fmt: skip


def carried(name, init, forward, *added, rest="", **further):
    stored = "".join(f"        {line}\n" for line in init)
    body = "".join(f"        {line}\n" for line in forward)
    program = f"{CLASS}{stored}    def forward(self, x):\n{body}{rest}model = Net()\n"
    add("GS502", name, program, *added, around=HEADER + CLASSES, **further)


LAYERS = ["self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)", "self.fc = nn.Linear(4, 3)"]
carried(
    "tensor", [*LAYERS, "self.h = torch.zeros(8, 4)"],
    ["self.h = torch.tanh(self.a(x) + self.b(self.h))", "return self.fc(self.h)"],
    "self.h = torch.tanh(self.a(x) + self.b(self.h.detach()))",
)  # fmt: skip
carried(
    "stored_at_the_end", [*LAYERS, "self.h = torch.zeros(8, 4)"],
    ["h = torch.tanh(self.a(x) + self.b(self.h))", "self.h = h  # carry", "return self.fc(h)"],
    "self.h = h.detach()  # carry",
)  # fmt: skip
RNN = "self.rnn = nn.{}(4, 4, batch_first=True); self.fc = nn.Linear(4, 3); self.h = None"
carried(
    "gru", [RNN.format("GRU")],
    ["y, self.h = self.rnn(x[:, None], self.h)", "return self.fc(y[:, -1])"],
    "self.h = self.h.detach()",
)  # fmt: skip
carried(
    "lstm", [RNN.format("LSTM")],
    ["y, self.h = self.rnn(x[:, None], self.h)", "return self.fc(y[:, -1])"],
    "self.h = tuple(part.detach() for part in self.h)",
)  # fmt: skip
carried(
    "stored_twice", [*LAYERS, "self.h = torch.zeros(8, 4)"],
    [
        "self.h = torch.tanh(self.a(x) + self.b(self.h))",
        "self.h = self.h * 2",
        "return self.fc(self.h)",
    ],
    None,
)  # fmt: skip
unregistered(
    "name_of_the_whole_package",
    ["self.fc = Linear(4, 3)", "self.inner = [Linear(4, 4), Linear(4, 4)]"],
    OVER_LIST,
    "self.inner = torch.nn.ModuleList([Linear(4, 4), Linear(4, 4)])",
    around="import torch\nfrom torch.nn import Linear, Module\n"
    "from torch.nn import functional as F\n" + CLASSES,
    make=CLASS.replace("nn.Module", "Module"),
)
classes(
    "last_layer_after_a_comment",
    """
    def build_model():
        return nn.Sequential(
            nn.Linear(4, 3),  # scores
            nn.Softmax(dim=1)
        )
    """,
    "nn.Linear(4, 3)  # scores",
)
in_place("two_writes_on_a_line", ["h += 1; x *= 2"], None)


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
cut("two_cuts", "return self.fc(self.a(x).detach() + self.b(x).detach())", None)
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
    None,
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
