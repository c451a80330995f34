"""One layer blob as a stream of tar bytes: decompressed within bounds, both its hashes checked at the end."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import IO, BinaryIO, Final, cast

import zstandard
from isal import isal_zlib
from isal.igzip_lib import IsalError

from images.digests import Digest
from images.errors import VerifyFailed
from images.oci import DOCKER_LAYER_GZIP, MEDIA_LAYER_GZIP, MEDIA_LAYER_TAR, MEDIA_LAYER_ZSTD, Descriptor

CHUNK: Final = 1 << 20
MAX_TAR_BYTES: Final = 64 << 30
# Text compresses 10:1, sparse files far better; what exceeds both of these is a decompression bomb.
FREE_TAR_BYTES: Final = 1 << 30
MAX_RATIO: Final = 1000
# The largest window a plain `zstd` reads without being told to; also the memory one layer may cost.
MAX_ZSTD_WINDOW: Final = 1 << 27
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def layer_chunks(file: BinaryIO, layer: Descriptor, diff_id: Digest | None, where: str) -> Iterator[bytes]:
    """The tar bytes of the layer in ``file`` (seekable, at its start), in chunks of at most ``CHUNK`` bytes.

    Every stored byte takes part: one that does not belong to the tar (a zstd skippable frame, a gzip comment,
    a tail) is refused, because nobody would scan it. Raises VerifyFailed naming ``where``, at the latest when
    the stream ends: a consumer may trust what it read only then. ``diff_id`` None: the stored bytes' hash is
    all that is asked (a scan of stored bytes whose diff id was checked before, or that have none).
    """
    source = _HashingReader(file)
    expanded = hashlib.sha256()
    size = 0
    most = min(MAX_TAR_BYTES, max(FREE_TAR_BYTES, MAX_RATIO * layer.size))
    try:
        for chunk in _expand(source, file, layer, where):
            size += len(chunk)
            if size > most:
                raise VerifyFailed(f"the layer expands to more than {most} bytes", where=where)
            if diff_id is not None:
                expanded.update(chunk)
            yield chunk
    except (zstandard.ZstdError, IsalError) as broken:  # type: ignore[misc]  # isal ships no type for it
        raise VerifyFailed(f"the layer does not decompress: {broken}", where=where) from None
    source.drain()
    if source.size != layer.size or source.hash.hexdigest() != layer.digest.hex:
        raise VerifyFailed("the layer's bytes are not those of its digest", where=where)
    if diff_id is not None and expanded.hexdigest() != diff_id.hex:
        raise VerifyFailed(f"the layer's tar is not the one of its diff id {diff_id}", where=where)


class LayerStream(io.RawIOBase):
    """The tar of a layer as a readable file that closes the blob with itself."""

    def __init__(self, file: BinaryIO, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._file = file
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _HashingReader:
    """Reads a file and hashes what it handed out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def read(self, size: int = CHUNK) -> bytes:
        data = self._file.read(size)
        self.hash.update(data)
        self.size += len(data)
        return data

    def drain(self) -> None:
        while self.read():
            pass


def _expand(source: _HashingReader, file: BinaryIO, layer: Descriptor, where: str) -> Iterator[bytes]:
    if layer.media_type == MEDIA_LAYER_TAR:
        while chunk := source.read():
            yield chunk
    elif layer.media_type in (MEDIA_LAYER_GZIP, DOCKER_LAYER_GZIP):
        yield from _gunzip(source, where)
    elif layer.media_type == MEDIA_LAYER_ZSTD:
        _check_zstd_frames(file, layer.size, where)
        file.seek(0)
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).stream_reader(
            cast(IO[bytes], source), read_size=CHUNK, read_across_frames=True
        )
        while chunk := reader.read(CHUNK):
            yield chunk
    else:
        raise VerifyFailed(f"a layer of type {layer.media_type[:100]!r} is not read here", where=where)


def _gunzip(source: _HashingReader, where: str) -> Iterator[bytes]:
    """All gzip members; ``max_length`` keeps one input chunk from becoming a gigabyte in memory."""
    pending = source.read()
    while pending:
        while len(pending) < 10 and (more := source.read()):
            pending += more
        # Flags 2 (header checksum), 4 (extra), 8 (name), 16 (comment): bytes outside of the tar.
        if len(pending) < 10 or pending[3] & ~1:
            raise VerifyFailed("the gzip stream holds bytes outside of the tar, or is cut short", where=where)
        member = isal_zlib.decompressobj(31)
        while not member.eof:
            chunk = member.decompress(pending, CHUNK)
            pending = member.unconsumed_tail
            if chunk:
                yield chunk
            elif not member.eof and not pending and not (pending := source.read()):
                raise VerifyFailed("the gzip stream is cut short", where=where)
        pending = member.unused_data or source.read()


def _check_zstd_frames(file: BinaryIO, size: int, where: str) -> None:
    """The blob is zstd frames from its first byte to its last, each of them with content."""
    position = 0
    while position < size:
        file.seek(position)
        head = file.read(18)
        if head[:4] != _ZSTD_MAGIC:
            raise VerifyFailed("the zstd stream holds bytes outside of the tar", where=where)
        frame = zstandard.get_frame_parameters(head)
        position += zstandard.frame_header_size(head)
        last = False
        while not last:
            file.seek(position)
            block = int.from_bytes(file.read(3), "little")
            last = bool(block & 1)
            # A block of type 1 repeats its one byte; the others store as many bytes as they say.
            position += 3 + (1 if (block >> 1) & 3 == 1 else block >> 3)
            if position > size:
                raise VerifyFailed("the zstd stream is cut short", where=where)
        position += 4 if frame.has_checksum else 0
    if position != size:
        raise VerifyFailed("the zstd stream is cut short", where=where)
