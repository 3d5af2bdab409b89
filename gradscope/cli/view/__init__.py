"""`gradscope view`: its command, and the server beside a run."""
