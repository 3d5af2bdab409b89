"""Runs a rank that a watched script has started: `python start_rank.py [-m] SCRIPT ARGS`."""

import sys
from pathlib import Path

# As with `python -m gradscope`: the first entry is where gradscope is, not this folder.
sys.path[0] = str(Path(__file__).parents[3])

from gradscope.cli.run.rank_launching import main  # noqa: E402

main()
