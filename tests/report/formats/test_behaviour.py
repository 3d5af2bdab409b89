"""Hostile names, missing numbers and narrow terminals."""

import math
from dataclasses import replace

import pytest

from gradscope.errors import GradscopeError
from gradscope.recording.records import StepRecord

HOSTILE = ["[/x]", "[bold]", "<script>", "a\x1b[31mred", "new\nline", "tab\there", "\u202egnp"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_names_are_shown_and_not_obeyed(name, encoding, build, printed):
    module = build.add(name, name)
    build.operate(module, name, 1.0, parameter=build.weight(module, 1.0), source=name)
    recording = build.recording()
    target = replace(recording.target, name=name, model=name, batch=name, loss=name)
    text = printed(replace(recording, target=target), 120, encoding, color=True)
    shown = name if name.isprintable() else name.encode("unicode_escape").decode()
    plain = printed.plain(text)
    assert f"{shown}.weight" in plain
    assert "\x1b[31m" not in text
    assert all(letter.isprintable() or letter == "\n" for letter in plain)


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_long_names_are_folded_and_nothing_of_them_is_lost(width, build, printed):
    name = ".".join(f"part{number}" for number in range(30))
    module = build.add(name, "Linear")
    build.operate(module, "AddmmBackward0", 1.0, parameter=build.weight(module, 1.0))
    text = printed(build.recording(), width)
    assert max(map(len, text.splitlines())) <= width
    table = text.split("Notable parameters\n")[1].split("\n\n")[0].splitlines()
    table = table[next(i for i, line in enumerate(table) if "part0" in line) :]
    joined = "".join(line.removeprefix("largest").split()[0] for line in table)
    assert joined == f"{name}.weight"


def test_long_paths_lose_their_first_folders(build, printed):
    module = build.add("layer", "Linear")
    build.operate(module, "AddmmBackward0", 1.0, parameter=build.weight(module, 1.0))
    build.operate(module, "MeanBackward0", 1.0)
    recording = build.recording()
    path = "/data/" + "/".join(["folder"] * 30) + "/model.py"
    sites = tuple(replace(site, file=path) for site in recording.sites)
    text = printed(replace(recording, sites=sites), 80)
    line = next(line for line in text.splitlines() if "model.py:1" in line)
    assert "…" in line
    assert len(line) <= 80


def test_model_without_any_gradient_has_no_bars(build, printed):
    module = build.add("layer", "Linear")
    build.weight(module, None, reach="none", reason="cut off")
    text = printed(build.recording())
    assert "1 without gradient" in text
    assert "cut off" in text
    assert "└" not in text
    assert "global norm —" in text


def test_empty_model_is_a_report_too(build, printed):
    text = printed(build.recording(steps=()))
    assert "loss        — from loss_fn(output, target)" in text
    assert "0 tensors" in text


def test_zero_missing_and_nan_look_different(build, printed):
    norms = {"zero": 0.0, "none": None, "nan": math.nan, "some": 0.25}
    for name, norm in norms.items():
        module = build.add(name, "Linear")
        reach = "none" if norm is None else "gradient" if norm else "zero"
        build.weight(module, norm, reach=reach, nonfinite=norm is not None and norm != norm)
    lines = {}
    for line in printed(build.recording()).splitlines():
        if line.startswith("  ") and "Linear" in line:
            lines[line.split()[0]] = line.split()[3:]
    assert lines["zero"][:2] == ["0", "zero"]
    assert lines["none"][0] == "none"
    assert lines["nan"][0] == "nan"
    assert lines["some"][0] == "0.250"


def test_synthetic_loss_is_warned_of(make_transformer, printed):
    recording = make_transformer().recording()
    assert "warning" not in printed(recording)
    target = replace(recording.target, synthetic_loss=True)
    assert "warning: the loss is guessed" in printed(replace(recording, target=target))


def test_colour_adds_nothing_to_the_words(make_transformer, printed):
    recording = make_transformer().recording()
    coloured = printed(recording, 80, color=True)
    assert "\x1b[" in coloured
    assert printed.plain(coloured) == printed(recording, 80)


def test_default_screen_of_a_transformer_is_short(make_transformer, printed):
    assert len(printed(make_transformer().recording(), 80).splitlines()) <= 75


def test_module_shows_that_module_alone(make_transformer, printed):
    text = printed(make_transformer().recording(), module="layers.3")
    assert "layers.3.norm.weight" in text
    assert "head" not in text


def test_unknown_module_is_an_error(make_transformer, printed):
    with pytest.raises(GradscopeError, match=r"no module `layers\.99`"):
        printed(make_transformer().recording(), module="layers.99")


def test_depth_folds_deeper_modules_and_says_so(make_transformer, printed):
    text = printed(make_transformer().recording(), depth=1)
    assert "layers ModuleList" in text
    assert "[0-11]" not in text.split("Parameters")[0]
    assert "deeper modules folded" in text


def test_no_tensors_are_listed_when_none_are_wanted(make_transformer, printed):
    assert "Tensors worth" not in printed(make_transformer().recording(), tensors="none")


def test_calls_of_one_module_in_one_line_share_a_row(build, printed):
    module = build.add("cell", "RNNCell")
    build.operate(module, "StackBackward0", 0.5)
    for _ in range(3):
        build.operate(module, "TanhBackward0", 0.25)
    build.operate(module, "SumBackward0", 0.5)
    recording = build.recording()
    calls = tuple(replace(call, call=call.index) for call in recording.calls)
    sites = tuple(replace(site, line=7) for site in recording.sites)
    text = printed(replace(recording, calls=calls, sites=sites))
    assert "Tanh in cell (calls 2-3)" in text


def test_probe_names_an_optimizer_that_the_target_does_not_have_as_assumed(build, printed):
    build.operate(build.add("layer", "Linear"), "AddmmBackward0", 1.0)
    recording = build.recording()
    probe = StepRecord(index=1, kind="probe", graph=0, loss=4.0, optimizer="Adam(lr=0.1)")
    recording = replace(recording, steps=(*recording.steps, probe))
    assert "after 1 probing step of an assumed Adam(lr=0.1): " in printed(recording)
    target = replace(recording.target, optimizer="Adam(lr=0.1)")
    assert "after 1 probing step of Adam(lr=0.1): " in printed(replace(recording, target=target))


def test_save_is_proposed_where_there_is_such_an_option(build, printed):
    build.operate(build.add("layer", "Linear"), "AddmmBackward0", 1.0)
    assert "--save" not in printed(build.recording())
    assert "Use --save FILE to keep the recording." in printed(build.recording(), can_save=True)


def test_where_non_finite_gradients_began_stands_first(build, printed):
    layer = build.add("layer", "Linear")
    build.operate(layer, "AddmmBackward0", float("nan"), parameter=build.weight(layer, 1.0))
    build.operate(layer, "SqrtBackward0", float("inf"))
    broken = [
        replace(stat, gradient=replace(stat.gradient, nonfinite=1), order=-stat.node)
        for stat in build.tensors
    ]
    text = printed(build.recording(tensor_stats=tuple(broken)))
    heading = text.index("non-finite: first to last in backward")
    assert heading < text.index("Sqrt in layer") < text.index("Addmm in layer")
    assert text.index("Addmm in layer") < text.index("Notable parameters")


def test_leaf_of_another_model_is_named_as_such(build, printed):
    build.operate(build.add("layer", "Linear"), "AddmmBackward0", 1.0)
    recording = build.recording()
    nodes = (*recording.nodes, replace(recording.nodes[0], index=1, kind="leaf", depth=1))
    stats = (*recording.tensor_stats, replace(recording.tensor_stats[0], node=1))
    text = printed(replace(recording, nodes=nodes, tensor_stats=stats))
    assert "leaf outside the model" in text


@pytest.mark.parametrize("width", [60, 80])
def test_names_of_deep_modules_end_lines_at_underscores_under_their_start(width, build, printed):
    path = "encoder_layer_group"
    parent = build.add(path, "Wrap")
    for _ in range(10):
        path += ".encoder_layer_group"
        parent = build.add(path, "Wrap", parent)
    build.operate(parent, "AddmmBackward0", 1.0, parameter=build.weight(parent, 1.0))
    lines = printed(build.recording(), width).splitlines()
    assert max(map(len, lines)) <= width
    pieces = {"encoder_", "encoder_layer_", "layer_", "layer_group", "group"}
    tree = lines[lines.index(next(line for line in lines if line.startswith("Model  "))) + 1 :]
    tree = tree[: tree.index("")]
    assert {line.split()[0] for line in tree if line.split()} >= {"encoder_layer_group"}
    assert not any(line.startswith(tuple(pieces - {"encoder_"})) for line in tree)
    assert all(line.strip() != "." for line in lines)


def test_class_of_a_module_of_the_same_name_is_shown_once(build, printed):
    layer = build.add("MSELoss", "MSELoss")
    build.operate(layer, "AddmmBackward0", 1.0, parameter=build.weight(layer, 1.0))
    assert "MSELoss MSELoss" not in printed(build.recording())
