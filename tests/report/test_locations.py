"""Lines of code as tables show them."""

import pytest

from gradscope.analysis.view import short_location


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("train.py:12", "train.py:12"),
        ("/home/me/project/deep/down/net.py:3", "/home/me/project/deep/down/net.py:3"),
        ("/env/lib/python3.12/site-packages/torch/functional.py:7", "torch/functional.py:7"),
        ("/usr/lib/python3/dist-packages/torch/nn/loss.py:7", "torch/nn/loss.py:7"),
        (
            "/env/lib/python3.12/site-packages/transformers/models/gpt2/modeling_gpt2.py:7",
            "…/gpt2/modeling_gpt2.py:7",
        ),
        (r"C:\env\Lib\site-packages\transformers\models\gpt2\model.py:7", "…/gpt2/model.py:7"),
        ("", ""),
    ],
)
def test_a_line_of_an_installed_package_is_short(location, shown):
    assert short_location(location) == shown
