import pytest

from tests.jobs import Jobs


@pytest.fixture(scope="session")
def jobs():
    """Processes that run jobs of two ranks."""
    running = Jobs()
    yield running
    running.close()
