"""Precisions and layouts of tensors."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.capture.small_models import batch


def test_transposed_and_channels_last_convolutions(watch_and_compare):
    def build() -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        return layers.to(memory_format=torch.channels_last)

    def forward(model) -> Tensor:
        images = batch(2, 3, 32, 32).to(memory_format=torch.channels_last)
        return model(images).square().mean()

    seen = watch_and_compare(build, forward)
    assert seen.gradient(seen.node("ReluBackward0")).numel == 2 * 6 * 30 * 30


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_precisions(watch_and_compare, dtype):
    seen = watch_and_compare(
        lambda: nn.Sequential(nn.Linear(4, 70), nn.Tanh(), nn.Linear(70, 70)).to(dtype),
        lambda model: model(batch().to(dtype)).square().mean(),
    )
    assert seen.recording.parameters[0].shape.dtype == str(dtype).removeprefix("torch.")


def test_half_precision_gradient_whose_squares_overflow(watch_and_compare):
    seen = watch_and_compare(
        lambda: nn.ParameterList([torch.ones(2000, dtype=torch.float16)]),
        lambda model: (model[0] * 3e4).float().sum(),
    )
    gradient = seen.parameter("0").gradient
    assert gradient.nonfinite == 0
    assert gradient.norm == pytest.approx(3e4 * math.sqrt(2000), rel=1e-3)


def test_autocast(watch_and_compare):
    def forward(model) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch()).float().square().mean()

    seen = watch_and_compare(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), forward
    )
    types = {output.dtype for node in seen.recording.nodes for output in node.outputs}
    assert types == {"bfloat16", "float32"}


def test_complex_parameters(watch_and_compare):
    seen = watch_and_compare(
        lambda: nn.Linear(4, 4, dtype=torch.complex64),
        lambda model: model(torch.complex(batch(), batch())).abs().square().mean(),
    )
    assert seen.recording.parameters[0].shape.dtype == "complex64"


@pytest.mark.parametrize("rows", [3, 3000])
def test_sparse_embedding_gradient_with_repeated_rows(watch_and_compare, rows):
    def forward(model) -> Tensor:
        return model(torch.randint(0, rows // 2 + 1, (2, rows))).square().mean()

    seen = watch_and_compare(lambda: nn.Embedding(rows, 4, sparse=True), forward)
    assert seen.parameter("weight").gradient.numel == rows * 4
    assert seen.parameter("weight").gradient.zero_share >= 1 / 3 - 1e-9


def test_sparse_parameter(watch_and_compare):
    def build() -> nn.Module:
        return nn.ParameterList([torch.eye(4).to_sparse()])

    seen = watch_and_compare(build, lambda model: torch.sparse.mm(model[0], batch(4, 2)).sum())
    assert seen.parameter("0").weight_norm == pytest.approx(2)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(watch_and_compare, layout):
    def forward(model) -> Tensor:
        rows = torch.nested.nested_tensor([batch(2, 4), batch(3, 4)], layout=layout)
        return torch.nested.to_padded_tensor(model(rows), 0.0).square().mean()

    watch_and_compare(lambda: nn.Linear(4, 4), forward)


def test_nan_and_infinite_gradients_are_counted(watch):
    model = nn.ParameterList([torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 1.0])])
    seen = watch(model, lambda: model[0].sqrt().sum() + (model[1] / model[1]).sum())
    assert (seen.parameter("0").gradient.nonfinite, seen.parameter("0").gradient.norm) == (
        1,
        math.inf,
    )
    assert seen.parameter("1").gradient.nonfinite == 1
    assert math.isnan(seen.parameter("1").gradient.norm)
    assert seen.parameter("1").reach == "gradient"
