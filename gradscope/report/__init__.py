"""From a recording to a report, and one renderer a file. Renderers never compute."""
