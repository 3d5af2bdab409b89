from collections import namedtuple

import pytest
import torch
from torch import nn

from gradscope.target.calling import divide_batch, forward_signature, second_argument, signature_of

X, Y, Z = torch.zeros(1), torch.ones(1), torch.full((1,), 2.0)


def one(x): ...
def two(x, y=None): ...
def both(x, y): ...
def three(a, b, c): ...
def named(input_ids, mask=None, labels=None): ...
def whole(batch): ...
def anything(*args, **kwargs): ...
def keywords(x, **kwargs): ...


def loss(output, target): ...
def loss_of_batch(output, batch): ...
def loss_alone(output): ...
def loss_labels(output, labels): ...


def divide(forward, batch, function=loss_alone):
    return divide_batch(batch, signature_of(forward), second_argument(function))


@pytest.mark.parametrize(
    ("forward", "batch", "function", "args", "second"),
    [
        (one, X, loss_alone, (X,), None),
        (one, X, loss, (X,), X),
        (one, X, loss_of_batch, (X,), X),
        (one, [X], loss, (X,), X),
        (one, (X, Y), loss, (X,), Y),
        (two, (X, Y), loss, (X,), Y),
        (anything, (X, Y), loss, (X,), Y),
        (both, (X, Y), loss, (X, Y), Y),
        (one, (X, Y), loss_alone, (X,), None),
        (two, (X, Y), loss_alone, (X, Y), None),
        (three, (X, Y, Z), loss_alone, (X, Y, Z), None),
        (both, (X, Y, Z), loss, (X, Y), Z),
        (one, ((X, Y), Z), loss, ((X, Y),), Z),
        (both, ((X, Y), Z), loss, (X, Y), Z),
        (two, ([X, Y], Z), loss, ([X, Y],), Z),
    ],
)
def test_sequences_and_tensors_are_divided(forward, batch, function, args, second):
    call = divide(forward, batch, function)
    assert call.kwargs == {}
    assert call.args == args
    assert call.second is second


def test_pair_is_the_batch_for_a_loss_that_asks_for_it():
    batch = (X, Y)
    call = divide(one, batch, loss_of_batch)
    assert call.args == (X,)
    assert call.second is batch


def test_namedtuple_is_divided_as_a_tuple():
    call = divide(one, namedtuple("Pair", ["x", "y"])(X, Y), loss)
    assert (call.args, call.second) == ((X,), Y)


def test_left_out_element_is_told():
    assert divide(one, (X, Y)).left_out == ("[1]",)
    assert divide(one, (X, Y), loss).left_out == ()


def test_mapping_becomes_keywords_without_unknown_keys():
    call = divide(named, {"input_ids": X, "mask": Y, "length": Z})
    assert call.kwargs == {"input_ids": X, "mask": Y}
    assert call.left_out == ("length",)


def test_mapping_is_given_whole_to_var_keywords():
    call = divide(keywords, {"x": X, "other": Y})
    assert call.kwargs == {"x": X, "other": Y}
    assert call.left_out == ()


@pytest.mark.parametrize("key", ["labels", "label", "targets", "target", "y"])
def test_target_is_found_in_a_mapping(key):
    call = divide(one, {"x": X, key: Y}, loss)
    assert call.kwargs == {"x": X}
    assert call.second is Y
    assert call.second_name == "target"
    assert call.left_out == ()


def test_parameter_of_the_loss_names_its_key():
    call = divide(one, {"x": X, "labels": Y, "target": Z}, loss_labels)
    assert call.second is Y


def test_two_possible_targets_are_left_to_the_loss():
    batch = {"x": X, "y": Y, "labels": Z}
    assert divide(one, batch, loss).second is batch


def test_mapping_without_target_is_the_second_argument():
    batch = {"x": X}
    call = divide(one, batch, loss)
    assert call.second is batch
    assert call.second_name == "batch"


def test_mapping_with_one_input_under_another_name_is_given_by_position():
    call = divide(one, {"image": X, "label": Y}, loss)
    assert (call.args, call.second) == ((X,), Y)


def test_model_that_takes_the_batch_gets_the_mapping():
    batch = {"image": X, "label": Y}
    call = divide(whole, batch)
    assert call.args[0] is batch
    assert call.left_out == ()


def of_batch(batch):
    pass


def test_a_forward_of_the_batch_gets_three_elements_whole():
    call = divide(of_batch, (X, Y, Z), loss_of_batch)
    assert call.args == ((X, Y, Z),)
    assert call.second == (X, Y, Z)


def test_a_forward_of_the_batch_gets_the_input_of_a_pair():
    assert divide(of_batch, (X, Z), loss).args == (X,)


class Picking(nn.Module):
    def forward(self, batch):
        return batch[0] + 1


class Unpacking(nn.Module):
    def forward(self, batch):
        points, _ = batch
        return points


class Slicing(nn.Module):
    def forward(self, batch):
        return batch[:, 0]


@pytest.mark.parametrize(
    ("model", "batch", "is_whole"),
    [
        (Picking(), (X, Y), True),
        (Unpacking(), (X, Y), True),
        (Unpacking(), [X, Y], True),
        (Slicing(), (X, Y), False),
        (Unpacking(), ((X, Y), Z), False),
        (Picking(), ({"a": X}, Z), False),
    ],
)
def test_a_forward_that_takes_the_batch_apart_gets_pairs_whole(model, batch, is_whole):
    for function in (loss, loss_of_batch):
        call = divide_batch(batch, forward_signature(model), second_argument(function))
        assert (call.args[0] is batch) == is_whole


def test_a_loss_of_the_batch_leaves_the_model_what_its_forward_takes():
    assert divide(one, (X, Y, Z), loss_of_batch).args == (X,)
    assert divide(both, (X, Y, Z), loss_of_batch).args == (X, Y)
    assert divide(both, (X, Y, Z, X), loss_of_batch).args == (X, Y)
    assert divide(one, (X, Y, Z), loss).args == (X, Y, Z)


def test_pair_of_mapping_and_target():
    call = divide(named, ({"input_ids": X, "mask": Y}, Z), loss)
    assert call.kwargs == {"input_ids": X, "mask": Y}
    assert call.second is Z


def test_pair_of_mapping_and_target_without_loss():
    call = divide(named, ({"input_ids": X}, Z))
    assert call.kwargs == {"input_ids": X}
    assert call.left_out == ("[1]",)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (nn.CrossEntropyLoss(), "target"),
        (nn.functional.mse_loss, "target"),
        (loss_of_batch, "batch"),
        (loss_alone, "nothing"),
        (torch.sub, "target"),
        (lambda output, data: None, "batch"),
    ],
)
def test_second_argument_is_judged_by_the_signature(function, wanted):
    assert second_argument(function).wanted == wanted


def picks(o, b):
    return (o - b[1]).abs()


def unpacks(o, pair):
    x, y = pair
    return (o - y).abs() * x


def slices(o, t):
    return (o[:, 0] - t[:, 0]).abs()


def of_several_targets(o, target):
    return o - target[0]


@pytest.mark.parametrize(
    ("function", "wanted"),
    [(picks, "batch"), (unpacks, "batch"), (slices, "target"), (of_several_targets, "target")],
)
def test_an_argument_that_is_taken_apart_is_the_batch(function, wanted):
    assert second_argument(function).wanted == wanted


def test_forward_is_looked_up_behind_wrappers():
    class Net(nn.Module):
        def forward(self, tokens): ...

    compiled = torch.compile(Net(), backend="eager")
    assert list(forward_signature(compiled).parameters) == ["tokens"]
    assert list(forward_signature(nn.DataParallel(Net())).parameters) == ["tokens"]


Pair = namedtuple("Pair", ["x", "y"])
Point = namedtuple("Point", ["left", "right"])


def of_pair(pair: Pair): ...
def takes_target(target): ...


@pytest.mark.parametrize(
    ("forward", "batch", "args", "second"),
    [
        (one, Pair(X, Y), (X,), Y),
        (both, Pair(X, Y), (X, Y), Y),
        (of_pair, Pair(X, Y), (Pair(X, Y),), Pair(X, Y)),
        (whole, Pair(X, Y), (Pair(X, Y),), Pair(X, Y)),
        (takes_target, Pair(X, Y), (Pair(X, Y),), Pair(X, Y)),
        (one, Point(X, Y), (Point(X, Y),), Point(X, Y)),
        (anything, Point(X, Y), (Point(X, Y),), Point(X, Y)),
        (both, Point(X, Y), (X, Y), Y),
        (two, (Point(X, Y), Z), (Point(X, Y),), Z),
    ],
)
def test_named_tuple_is_one_argument_unless_it_is_a_pair(forward, batch, args, second):
    call = divide(forward, batch, loss)
    assert call.args == args
    assert call.second == second


def test_packed_sequence_is_one_argument():
    packed = nn.utils.rnn.pack_sequence([torch.ones(4, 5), torch.ones(2, 5)])
    for forward in (one, two, anything):
        assert divide(forward, packed).args == (packed,)
        assert divide(forward, (packed, Y), loss).args == (packed,)
