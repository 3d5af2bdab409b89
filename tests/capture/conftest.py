"""Runs one forward and backward with gradscope and without."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from gradscope.capture.naming import name_model
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.measurements import Measurements
from gradscope.recording.records import (
    GradientStat,
    ModuleCallRecord,
    NodeRecord,
    ParameterStat,
    Recording,
    Site,
)
from tests.records import ENVIRONMENT, target

Forward = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What gradscope saw of one step."""

    recording: Recording
    measured: Measurements

    def parameter(self, name: str) -> ParameterStat:
        names = {record.name: record.index for record in self.recording.parameters}
        return self.recording.parameter_stats[names[name]]

    def nodes(self, operation: str) -> list[NodeRecord]:
        """The nodes of an operation, in the order of the forward."""
        found = [node for node in self.recording.nodes if node.operation == operation]
        return sorted(found, key=lambda node: -1 if node.sequence is None else node.sequence)

    def node(self, operation: str) -> NodeRecord:
        (found,) = self.nodes(operation)
        return found

    def gradient(self, node: NodeRecord, slot: int = 0) -> GradientStat | None:
        """The gradient with respect to a node's output; of a view, that of what it shows."""
        if node.same_as is not None:
            return self.gradient(self.recording.nodes[node.same_as.node], node.same_as.slot)
        stats = self.recording.tensor_stats
        found = [stat for stat in stats if (stat.node, stat.slot) == (node.index, slot)]
        return found[0].gradient if found else None

    def site(self, operation: str) -> Site | None:
        """The line of the one node, or of all nodes, of an operation."""
        positions = {node.site for node in self.nodes(operation)}
        assert len(positions) == 1, positions
        (position,) = positions
        return None if position is None else self.recording.sites[position]

    def module(self, operation: str) -> list[str | None]:
        """The module call that made each node of an operation, as `path#call`."""
        calls = [node.module_call for node in self.nodes(operation)]
        return [None if call is None else self.call_name(call) for call in calls]

    def call_name(self, call: int) -> str:
        record = self.recording.calls[call]
        return f"{self.recording.modules[record.module].path}#{record.call}"

    def calls(self, path: str) -> list[ModuleCallRecord]:
        modules = self.recording.modules
        return [call for call in self.recording.calls if modules[call.module].path == path]

    def output_norm(self, call: ModuleCallRecord) -> float | None:
        (output,) = call.outputs
        gradient = self.gradient(self.recording.nodes[output.node], output.slot)
        return None if gradient is None else gradient.norm


def watch(model: nn.Module, forward: Callable[[], Tensor], **options: Tensor) -> Watched:
    """Run a forward and its backward under watch."""
    named = name_model(model, None)
    capture = StepCapture(named.parameters)
    with capture.forward():
        loss = forward()
    measured = capture.backward(loss, options.get("grad_output"))
    assembler = Assembler(named, version="0", command="test", environment=ENVIRONMENT)
    assembler.add_step("step", capture, measured, loss=None)
    capture.close()
    return Watched(recording=assembler.finish(target(loss="loss", root="/")), measured=measured)


def double_norm(tensor: Tensor) -> float:
    values = tensor.coalesce().values() if tensor.is_sparse else tensor
    wide = torch.complex128 if values.is_complex() else torch.float64
    return torch.linalg.vector_norm(values.detach().to(wide)).item()


def watch_and_compare(build: Callable[[], nn.Module], forward: Callable[[nn.Module], Tensor]):
    """Run a step without and with gradscope; both must agree to the last bit.

    Returns what gradscope saw, whose norms have been compared with those of the gradients.
    """

    def fresh() -> nn.Module:
        torch.manual_seed(0)
        model = build()
        torch.manual_seed(1)
        return model

    plain = fresh()
    plain_loss = forward(plain)
    plain_loss.backward()
    plain_random_state = torch.get_rng_state()

    model, losses = fresh(), []

    def noted() -> Tensor:
        losses.append(forward(model))
        return losses[0]

    seen = watch(model, noted)
    assert _equal(losses[0], plain_loss)
    assert torch.equal(torch.get_rng_state(), plain_random_state)
    parameters = dict(model.named_parameters())
    for name, expected in plain.named_parameters():
        gradient = parameters[name].grad
        assert _equal(gradient, expected.grad), name
        assert _equal(parameters[name], expected), name
        _check_norm(seen.parameter(name), expected.grad)
    for buffer, expected in zip(model.buffers(), plain.buffers(), strict=True):
        assert _equal(buffer, expected)
    return seen


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.is_sparse:
        one, other = one.coalesce().to_dense(), other.coalesce().to_dense()
    return torch.equal(one.detach(), other.detach())


def _check_norm(stat: ParameterStat, gradient: Tensor | None) -> None:
    if gradient is None:
        assert stat.gradient is None
        assert stat.reach in ("none", "frozen")
        assert stat.reason
    elif gradient.numel():
        assert stat.gradient is not None
        assert stat.gradient.norm == pytest.approx(double_norm(gradient), rel=1e-6, abs=0)


@pytest.fixture(name="watch")
def _watch():
    return watch


@pytest.fixture(name="watch_and_compare")
def _watch_and_compare():
    return watch_and_compare


@pytest.fixture(name="double_norm")
def _double_norm():
    return double_norm


@pytest.fixture(autouse=True)
def _one_thread():
    """Sums in one order: two plain steps are then equal bit for bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
