"""`python -m gradscope`."""

from gradscope.cli import main

main()
