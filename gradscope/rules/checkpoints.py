"""What is said of checkpoints by `torch.utils.checkpoint`."""

from gradscope.recording.records import Site

NO_INPUT = "a reentrant checkpoint gives no gradient where its input needs none"


def remedy_of_reentrant(site: Site | None) -> str:
    """Return what to do about one, by the line that calls it."""
    if site is not None and site.is_installed:
        return (
            "give it use_reentrant=False; transformers by gradient_checkpointing_kwargs="
            '{"use_reentrant": False}'
        )
    return "give it use_reentrant=False"
