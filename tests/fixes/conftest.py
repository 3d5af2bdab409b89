from pathlib import Path

import pytest

from tests.conftest import ENVIRONMENT, IMPORTED_BY_INSPECT
from tests.forked import ForkedCommands


@pytest.fixture(scope="package")
def fixing_in():
    """Runs gradscope in a folder, and the edited programs too, in processes that have torch."""
    commands = ForkedCommands([*IMPORTED_BY_INSPECT, "libcst.metadata"], ENVIRONMENT)
    first = Path(__file__).with_name("forking_children.py")

    def run(folder, *arguments):
        return commands.run(folder, arguments, ENVIRONMENT, first=first)

    yield run
    commands.close()
