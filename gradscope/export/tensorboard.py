"""Files of events for TensorBoard, by its own package, which is imported for it alone."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.export.scalars import Scalars

EVENTS_FILE = "events.out.tfevents.gradscope"
"""TensorBoard knows its files by the part in the middle."""

_VALUES = 128
"""Of an event: longer ones take longer to sum up."""
_EVENTS = 1_024
"""That are summed up, and written, together."""


def check_tensorboard() -> None:
    """Make sure that events can be written.

    Raises:
        GradscopeError: A package is missing.
    """
    try:
        import tensorboard.compat.proto.event_pb2  # noqa: F401
    except ImportError:
        raise GradscopeError(
            "events for TensorBoard are written by its package, which is not installed",
            help="pip install tensorboard",
        ) from None


def write_events(steps: Iterable[Scalars], file: Path) -> None:
    """Write scalars to a file; their wall time is the seconds since the recording began."""
    with file.open("wb") as stream:
        records = _records(steps)
        while group := list(islice(records, _EVENTS)):
            stream.writelines(_framed(group))


def _records(steps: Iterable[Scalars]) -> Iterator[bytes]:
    """Yield events as they are stored, the first of which tells the version of the format."""
    from tensorboard.compat.proto.event_pb2 import Event

    yield Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString()
    for one in steps:
        for start in range(0, len(one.values), _VALUES):
            event = Event(wall_time=one.seconds, step=one.step)
            add = event.summary.value.add
            for tag, value in one.values[start : start + _VALUES]:
                add(tag=tag, simple_value=value)
            yield event.SerializeToString(deterministic=True)


def _framed(records: Sequence[bytes]) -> Iterator[bytes]:
    """Yield what stands in the file: the length of each record, the record, and their checksums."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    sums = zip(_checksums(lengths), _checksums(records), strict=True)
    for length, record, (of_length, of_record) in zip(lengths, records, sums, strict=True):
        yield length + struct.pack("<I", of_length) + record + struct.pack("<I", of_record)


def _checksums(records: Sequence[bytes]) -> list[int]:
    """Return the masked CRC-32C of each record, of at least four bytes.

    All of them at once, byte by byte: TensorBoard's own function takes ten times as long.
    Zeros before a record leave a sum that begins with 0 as it is; where it is to begin with ones,
    the first four bytes are inverted instead.
    """
    import numpy

    longest = max(map(len, records))
    matrix = numpy.zeros((len(records), longest), dtype=numpy.uint8)
    for row, record in zip(matrix, records, strict=True):
        start = longest - len(record)
        row[start:] = numpy.frombuffer(record, dtype=numpy.uint8)
        row[start : start + 4] ^= 0xFF
    table = numpy.array(list(_table()), dtype=numpy.uint32)
    sums = numpy.zeros(len(records), dtype=numpy.uint32)
    for column in numpy.ascontiguousarray(matrix.T):
        sums = table[(sums ^ column) & 0xFF] ^ (sums >> 8)
    return [_masked(one ^ 0xFFFFFFFF) for one in sums.tolist()]


def _table() -> Iterator[int]:
    """Yield what each byte adds to a CRC-32C."""
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


def _masked(checksum: int) -> int:
    """Return a checksum as TensorFlow's files hold it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
