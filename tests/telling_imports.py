"""Run before a command that was forked: at its end, it writes which packages were imported."""

import atexit
import os
import sys
from pathlib import Path

FILE = Path(os.environ.pop("PACKAGES_FILE"))


@atexit.register
def write_packages() -> None:
    FILE.write_text("\n".join({name.partition(".")[0] for name in sys.modules}))
