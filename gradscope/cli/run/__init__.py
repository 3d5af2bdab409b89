"""`gradscope run`: its options, and what runs, shows and reports on the script."""
