"""Losses of wrong shape or of probabilities, formatted in many ways."""

from tests.fixes.odd_program import CLASS, CLASSES, HEADER, REGRESSION, Program, adding_to

PROGRAMS: list[Program] = []
add = adding_to(PROGRAMS)


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
classes(
    "logits_to_nll_loss", "def build_model():\n    return nn.Linear(4, 3)",
    "return F.cross_entropy(output, target)",
    around=HEADER + LOG,
)  # fmt: skip
classes(
    "logits_to_the_layer", "criterion = nn.NLLLoss(reduction='sum')\nmodel = nn.Linear(4, 3)\n"
    "def loss_fn(output, target):\n    return criterion(output, target)",
    "criterion = nn.CrossEntropyLoss(reduction='sum')",
    around=HEADER + CLASSES.partition("def loss_fn")[0],
)  # fmt: skip
classes(
    "logits_to_two_losses",
    "def build_model():\n    return nn.Linear(4, 3)\n"
    "def evaluated(output, target):\n    return F.nll_loss(output.log(), target)",
    None,
    around=HEADER + LOG,
)


TAGS = (
    HEADER
    + """
def build_batch():
    return torch.randn(12, 11, 4), torch.arange(132).reshape(12, 11) % 6
def loss_fn(output, target):
    return F.nll_loss(output.reshape(-1, 6), target.reshape(-1))
"""
)


def tags(name, text, *added):
    add("GS701", name, text, *added, around=TAGS)


tags(
    "dimension_of_a_function",
    CLASS
    + """        self.fc = nn.Linear(4, 6)
    def forward(self, x): return F.log_softmax(
        self.fc(x), dim=1)  # over the tags
def build_model(): return Net()
""",
    "self.fc(x), dim=-1)  # over the tags",
)
tags(
    "dimension_of_a_method",
    "class Net(nn.Linear):\n    def forward(self, x): y = super().forward(x); return "
    "y.log_softmax(1)\ndef build_model(): return Net(4, 6)",
    "def forward(self, x): y = super().forward(x); return y.log_softmax(-1)",
)
tags(
    "dimension_of_a_layer",
    "def build_model(): return nn.Sequential(nn.Linear(4, 6), nn.LogSoftmax(1))",
    "def build_model(): return nn.Sequential(nn.Linear(4, 6), nn.LogSoftmax(-1))",
)
tags(
    "dimension_of_a_variable",
    "DIM = 1\ndef build_model(): return nn.Sequential(nn.Linear(4, 6), nn.LogSoftmax(DIM))",
    None,
)
add(
    "GS701", "dimension_of_a_map",
    """
    def build_batch(): return torch.randn(5, 4, 7), torch.arange(35).reshape(5, 7) % 6
    def build_model(): return nn.Sequential(nn.Conv1d(4, 6, 1), nn.LogSoftmax(dim=-1))
    def loss_fn(output, target): return F.nll_loss(output, target)
    """,
    "def build_model(): return nn.Sequential(nn.Conv1d(4, 6, 1), nn.LogSoftmax(dim=1))",
)  # fmt: skip
