"""Close looks at some backward passes of a script: what `inspect` sees of one, without a rerun."""
