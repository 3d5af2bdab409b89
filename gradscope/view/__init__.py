"""The local server of `gradscope view`: a list of recordings, and the current page of each."""
