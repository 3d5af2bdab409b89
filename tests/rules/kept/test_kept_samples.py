"""Rules find the same in the samples of rules on runs, whole and within 2 MB."""

import ast
import warnings
from pathlib import Path

import pytest
from torch.optim.optimizer import register_optimizer_step_post_hook

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.recording.thinning.room import Room
from gradscope.rules.catalogue import RULES
from gradscope.rules.rule import family_of
from tests.nightly import some_on_push
from tests.rules.kept.kept_runs import outcomes, rewritten
from tests.rules.watching import recording_of

SAMPLES = Path(__file__).parents[3] / "sample_models"
CODES = {
    rule.code: SAMPLES / f"{rule.name.replace('-', '_')}.py"
    for rule in RULES
    if rule.needs_run and family_of(rule.code) != "ranks"
}
ON_PUSH = [place for place, code in enumerate(CODES) if code == "GS406"]
LITTLE = Room(limit=2_000_000, recent=100, chunks=10, around=300)
"""Less than what 2 MB hold: most steps become summaries."""


LONGER = {"GS324": ("randn(10, ", "randn(400, "), "GS326": ("320", "12800")}
"""Rules on schedules that are planned for a number of epochs: their samples get more batches."""


class _Endless(ast.NodeTransformer):
    """Makes the outermost loops that train go on as long as a function `_long` says."""

    def visit_For(self, node: ast.For) -> ast.For:
        names = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        if names & {"backward", "grad", "step"}:
            call = ast.Call(ast.Name("_long", ast.Load()), [node.iter], [])
            node.iter = ast.fix_missing_locations(ast.copy_location(call, node.iter))
        return node


def train(code, steps):
    """Run a sample until its optimizers have made so many steps, or its loop as many turns."""
    path, made, turns = CODES[code], 0, 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1

    def longer(values):
        nonlocal turns
        kept = None if isinstance(values, range) else list(values)
        while max(made, turns) < steps:
            for value in (turns,) if kept is None else kept:
                turns += 1
                yield value

    text = path.read_text()
    if code in LONGER:
        tree = ast.parse(text.replace(*LONGER[code]))
    else:
        tree = _Endless().visit(ast.parse(text))
    hook = register_optimizer_step_post_hook(count)
    try:
        exec(
            compile(tree, str(path), "exec"),
            {"__name__": "__main__", "__file__": str(path), "_long": longer},
        )
    finally:
        hook.remove()


@pytest.mark.parametrize("code", some_on_push(CODES, ON_PUSH))
def test_the_findings_in_a_sample_do_not_depend_on_what_is_kept(code, tmp_path, request):
    is_push = request.node.get_closest_marker("nightly") is None
    steps, rooms = (450, [LITTLE]) if is_push else (1_500, [LITTLE, Room.of("2MB")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some of the mistakes too
        whole = recording_of(lambda: train(code, steps), tmp_path)
    found = outcomes(whole)
    assert found
    for room in rooms:
        kept = rewritten(whole, tmp_path / "kept.gradscope", room)
        if is_push:
            assert KeptSteps(kept).missing > steps / 5
        assert outcomes(kept) == found
