"""Functions that freeze a whole and unfreeze a part, read from their source."""

import ast

import pytest

from gradscope.probes.parameter_history import partly_unfrozen

FREEZE = "for p in net.parameters():\n    p.requires_grad = False"
UNFREEZE = "for p in net.head.parameters():\n    p.requires_grad_(True)"
USE = "value = net(x).mean()"


def found(*statements: str) -> list[tuple[int, int]]:
    body = "\n".join(statements).replace("\n", "\n    ")
    return list(partly_unfrozen(ast.parse(f"def function(net, x):\n    {body}\n")))


@pytest.mark.parametrize(
    ("freeze", "use", "unfreeze"),
    [
        (FREEZE, USE, UNFREEZE),
        ("net.requires_grad_(False)", "value = score(net, x)", "net.head.requires_grad_()"),
        ("set_requires_grad(net, False)", USE, "set_requires_grad(net.head, True)"),
        ("freeze(net)", USE, "unfreeze(net.head)"),
        ("net.freeze()", USE, "net.head.unfreeze()"),
        ("toggle_grad(net, requires_grad=False)", USE, "toggle_grad(net.head, requires_grad=True)"),
    ],
)
def test_a_part_that_is_unfrozen_after_a_use_of_the_whole_is_found(freeze, use, unfreeze):
    first = 2
    last = first + len([*freeze.split("\n"), *use.split("\n")])
    assert found(freeze, use, unfreeze) == [(first, last)]


@pytest.mark.parametrize(
    "statements",
    [
        (FREEZE, UNFREEZE),  # all but the head is frozen
        (FREEZE, USE, UNFREEZE.replace("net.head", "net")),  # all is unfrozen again
        (FREEZE, USE),
        (UNFREEZE, USE, FREEZE),
        (FREEZE, "print('frozen')", UNFREEZE),  # nothing uses the whole in between
        (FREEZE, USE, UNFREEZE.replace("net.head", "other.head")),
    ],
)
def test_what_is_frozen_for_good_or_unfrozen_whole_is_not_found(statements):
    assert found(*statements) == []
