"""Values are known again after any number of others."""

from gradscope.capture.training.steps.replaced_weights import SeenValues


def values(number):
    return number.to_bytes(16, "little")


def test_all_values_are_known_again_and_hardly_any_others():
    seen = SeenValues()
    assert values(0) not in seen
    for number in range(100_000):
        seen.add([values(number)])
    assert all(values(number) in seen for number in range(100_000))
    others = sum(values(number) in seen for number in range(100_000, 120_000))
    assert others < 0.005 * 20_000  # a filter of two bits in 4 million expects 0.2 %
