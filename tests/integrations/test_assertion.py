"""`gradscope.testing.assert_gradients_healthy` fails when it should, with a reason."""

import dataclasses
import inspect
import pickle
import random
import traceback

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import gradscope
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.integrations import pytest_plugin
from gradscope.report.brief import failure_text
from gradscope.testing import UnhealthyGradientsError, assert_gradients_healthy
from tests.nightly import some_on_push


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(8, 4), torch.randn(8, 4)


class Probed(nn.Module):
    """A head on a backbone that is cut off, which may be meant so: a warning."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x).detach())


def unhealthy(*arguments, **options) -> UnhealthyGradientsError:
    with pytest.raises(UnhealthyGradientsError) as caught:
        assert_gradients_healthy(*arguments, **options)
    return caught.value


def root_of_zero(output: Tensor, target: Tensor) -> Tensor:
    return (output - output.detach()).square().sum(-1).sqrt().mean()


def test_healthy_model_passes_and_gives_the_report():
    report = assert_gradients_healthy(network(), batch(), F.mse_loss)
    assert report.summary.reached == 4


def test_failure_tells_rule_place_code_and_remedy():
    error = unhealthy(network(), batch(), root_of_zero)
    finding = error.findings[0]
    assert (finding.rule, finding.severity) == ("GS103", "error")
    text = str(error)
    assert text.startswith("GS103 non-finite-gradient in Sequential: 1 error\n")
    _, line = inspect.getsourcelines(root_of_zero)
    assert f"test_assertion.py:{line + 1} in root_of_zero" in text
    assert "    return (output - output.detach()).square()" in text  # cut where lines are short
    assert "help: add a small number to the argument" in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("level", "fails"), some_on_push([("error", False), ("warning", True), ("note", True)], 2)
)
def test_fail_level(level, fails):
    def check():
        return assert_gradients_healthy(Probed(), batch(), F.mse_loss, fail_level=level)

    severities = [one.severity for one in gradscope.inspect(Probed(), batch(), F.mse_loss).findings]
    assert severities == ["warning"]
    if fails:
        with pytest.raises(UnhealthyGradientsError, match="GS201 gradient-cut in Probed"):
            check()
    else:
        assert [one.rule for one in check().findings] == ["GS201"]


def test_milder_findings_are_told_beside():
    error = unhealthy(Probed(), batch(), root_of_zero)
    assert "below the fail level: 1 warning (GS201 gradient-cut)" in str(error)


def norm() -> float:
    return gradscope.inspect(network(), batch(), F.mse_loss).summary.grad_norm


@pytest.mark.parametrize(
    ("limit", "factor", "fails"),
    some_on_push(
        [
            ("max_norm", 0.999, True),
            ("max_norm", 1.0, False),
            ("max_norm", 1.001, False),
            ("min_norm", 0.999, False),
            ("min_norm", 1.0, False),
            ("min_norm", 1.001, True),
        ],
        {0, 1},
    ),
)
def test_limits_of_the_norm(limit, factor, fails):
    limits = {limit: norm() * factor}
    if fails:
        error = unhealthy(network(), batch(), F.mse_loss, select="GS2", **limits)
        assert [one.rule for one in error.findings] == ["GS113"]
    else:
        assert_gradients_healthy(network(), batch(), F.mse_loss, select="GS2", **limits)


# Never green because it saw nothing


def test_nothing_that_learns():
    error = unhealthy(network().requires_grad_(False), batch(), F.mse_loss)
    assert [one.rule for one in error.findings] == ["GS501"]
    error = unhealthy(network().requires_grad_(False), batch(), F.mse_loss, ignore="GS501")
    assert error.findings == ()
    assert str(error).startswith("Sequential could not be checked: autograd raised an exception\n")


def test_no_parameter_reached():
    leaf = torch.ones(1, requires_grad=True)
    error = unhealthy(network(), batch(), lambda output, target: leaf.sum(), ignore="reach")
    assert error.findings == ()
    assert "could not be checked: no parameter received a gradient" in str(error)


def test_zero_gradient_everywhere():
    error = unhealthy(network(), batch(), lambda output, target: (0 * output).sum())
    assert [one.rule for one in error.findings] == ["GS204"]


def test_no_rule_that_could_judge():
    error = unhealthy(network(), batch(), F.mse_loss, select="GS205")
    assert "no rule could check the gradients" in str(error)
    assert "the target has no optimizer" in str(error)
    assert "no rule could check the gradients" in str(
        unhealthy(network(), batch(), F.mse_loss, ignore="ALL")
    )


def test_made_up_loss_is_refused():
    with pytest.raises(GradscopeError, match="no loss found"):
        assert_gradients_healthy(network(), batch()[0])
    assert_gradients_healthy(network(), batch()[0], grad_output="ones")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fail_level": "warn"}, "fail_level is 'warn', expected one of"),
        ({"max_norm": float("nan")}, "max_norm is nan"),
        ({"min_norm": -1.0}, "min_norm is -1.0"),
        ({"max_norm": "10"}, "max_norm is '10'"),
        ({"max_norm": 1.0, "min_norm": 2.0}, "min_norm 2.0 is larger than max_norm 1.0"),
        ({"select": "GS999"}, "no rule `GS999`"),
        ({"probe_steps": -1}, "probe_steps is -1"),
        ({"steps": -1}, "steps is -1, expected 0 or more"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"steps": True}, "steps is True"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(GradscopeError, match=message):
        assert_gradients_healthy(network(), batch(), F.mse_loss, **options)


def test_traceback_of_user_code_holds_its_own_frames_alone():
    def loss(output: Tensor, target: Tensor) -> Tensor:
        raise ZeroDivisionError("in the loss")

    with pytest.raises(UserCodeError) as caught:
        assert_gradients_healthy(network(), batch(), loss)
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [frame.name for frame in frames] == ["loss"]


# Where it runs makes no difference


def test_configuration_files_are_not_read(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.gradscope]\nignore = ["ALL"]\n')
    monkeypatch.chdir(tmp_path)
    assert [one.rule for one in unhealthy(network(), batch(), root_of_zero).findings] == ["GS103"]


def test_dropout_is_drawn_the_same_in_every_run():
    model, data = nn.Sequential(network(), nn.Dropout(0.5)), batch()

    def seen(**options):
        return assert_gradients_healthy(model, data, F.mse_loss, **options).summary.grad_norm

    first = seen()
    torch.rand(3)
    assert seen() == first
    assert len({seen(seed=number) for number in range(5)}) > 1
    assert len({(torch.manual_seed(n), seen(seed=None))[1] for n in range(5)}) > 1


@pytest.mark.parametrize("loss", [F.mse_loss, root_of_zero], ids=["healthy", "sick"])
def test_everything_is_left_as_it_was(loss):
    model, data = nn.Sequential(network(), nn.BatchNorm1d(4), nn.Dropout(0.5)), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loss(model(data[0]), data[1]).backward()

    def state() -> list[object]:
        tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]
        values = [tensor.detach().numpy().tobytes() for tensor in tensors]
        return [*values, optimizer.state_dict()["state"], torch.get_rng_state().tolist()]

    random.seed(0)
    before, drawn = state(), random.getstate()
    try:
        assert_gradients_healthy(model, data, loss, optimizer=optimizer)
    except UnhealthyGradientsError:
        assert loss is root_of_zero
    assert state() == before
    assert random.getstate() == drawn


# The error is one like others


def test_error_is_a_failed_assertion_and_can_be_pickled():
    error = unhealthy(network(), batch(), root_of_zero)
    assert isinstance(error, AssertionError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.findings) == (str(error), error.findings)


def test_many_findings_are_told_in_lines():
    error = unhealthy(network(), batch(), root_of_zero)
    kinds = ("error",) * 2 + ("warning",) * 18
    findings = tuple(
        dataclasses.replace(error.findings[0], rule=f"GS9{number:02}", severity=severity)
        for number, severity in enumerate(kinds)
    )
    text = failure_text(error.report, findings, None)
    head = text.partition("\n")[0]
    assert head.endswith("and 17 more in Sequential: 2 errors and 18 warnings")
    assert text.count("help:") == 3
    assert text.count("test_assertion.py:") == 3 + 9 + text.count("finite: its norm")
    assert text.endswith("and 8 more: 8 warnings")
    assert len(text.splitlines()) < 80


def test_names_cannot_rule_the_terminal():
    class Named(Probed):
        pass

    Named.__name__ = "Ev\x1b[31mil\n"
    text = str(unhealthy(Named(), batch(), F.mse_loss, fail_level="note"))
    assert "\x1b" not in text
    assert text.startswith(r"GS201 gradient-cut in Ev\x1b[31mil\n: 1 warning")


def test_plugin_knows_every_argument():
    parameters = inspect.signature(assert_gradients_healthy).parameters.values()
    named = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    assert set(pytest_plugin.CheckOptions.__annotations__) == named
