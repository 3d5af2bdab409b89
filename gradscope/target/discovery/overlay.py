"""Imports edited versions of files in place of the files, which stay as they are."""

import io
import linecache
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from types import CodeType


def install_overlay(texts: Mapping[str, str]) -> None:
    """Let all later imports of this process read some files as other texts.

    The process must import nothing else of the files before, and is not put back.

    Args:
        texts: Texts by absolute path.
    """
    own_code = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = loader.get_filename(fullname)
        if path not in texts:
            return own_code(loader, fullname)
        # Compiled here: a cached bytecode file has the code of the file on disk.
        return loader.source_to_code(texts[path], path)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
    for path, text in texts.items():
        # Without a time of modification, the entry stays although the file differs.
        lines = io.StringIO(text, newline=None).readlines()
        linecache.cache[path] = (len(text), None, lines, path)
