"""The recording: frozen records, and their SQLite file."""
