"""The recording: frozen records, and the SQLite file that keeps them."""
