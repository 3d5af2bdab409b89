from tests.push_selection import chosen, function_of

SECONDS = {"a.py::t[1]": 3.0, "a.py::t[2]": 2.0, "a.py::t[3]": 1.0, "a.py::u": 4.0}


def of(*lines):
    return {(1, line, line + 1) for line in lines}


def test_costly_cases_go_and_half_of_them_stay():
    assert chosen(SECONDS, {test: of(1) for test in SECONDS}) == ["a.py::t[1]"]


def test_a_case_that_alone_takes_a_branch_stays():
    branches = {test: of(1) for test in SECONDS} | {"a.py::t[1]": of(1, 2)}
    assert chosen(SECONDS, branches) == ["a.py::t[2]"]


def test_of_two_cases_that_share_a_branch_one_stays():
    seconds = SECONDS | {"a.py::t[4]": 0.5}
    branches = {test: of(1) for test in seconds}
    branches |= {"a.py::t[1]": of(1, 2), "a.py::t[2]": of(1, 2)}
    assert chosen(seconds, branches) == ["a.py::t[1]", "a.py::t[3]"]


def test_a_test_without_cases_stays():
    assert chosen({"a.py::u": 1.0}, {}) == []
    assert function_of("a.py::t[x[0]]") == "a.py::t"
