"""A loss of many numbers is reported where it was made (GS504)."""

import pytest

from tests.rules.raising import HEAD, check

NON_SCALAR = {
    "no reduction": """
def loss_fn(output, target):
    return F.mse_loss(output, target, reduction="none")  # <-
""",
    "a mean over one dimension": """
def compute_loss(model, batch):
    error = (model(batch[0]) - batch[1]).square()
    return error.mean(-1)  # <-
""",
    "its own backward": """
def compute_loss(model, batch):
    error = (model(batch[0]) - batch[1]).square()  # <-
    error.backward()  # also
    return error.mean()
""",
}


@pytest.mark.parametrize("text", NON_SCALAR.values(), ids=NON_SCALAR)
def test_a_loss_of_many_numbers_points_to_what_made_it(inspect_file, text):
    finding = check(inspect_file, "GS504", text)
    assert "of shape [3" in finding.message


def test_one_element_is_a_scalar(inspect_file):
    text = "def loss_fn(output, target): return F.mse_loss(output, target).view(1, 1)\n"
    assert not inspect_file(HEAD + text).findings
