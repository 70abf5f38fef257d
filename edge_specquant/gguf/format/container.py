"""The GGUF container: reads the header of one file into key-value fields and a tensor table.

Takes a path, gives a `Container`; arrays stay undecoded until asked for, so a vocabulary of 150,000 strings costs a
walk over its lengths and no more. Every length in the file is checked against the file's size before it is believed:
a hostile header is an error, not memory. Knows nothing of architectures or vocabularies.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from ...errors import GGUFError
from .weight_types import BY_ID, WeightType

Scalar: TypeAlias = int | float | bool | str
Value: TypeAlias = Scalar | list[Scalar]

_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_KEY_BYTES = 65_535
_MAX_DIMENSIONS = 4
_READ_BYTES = 1 << 20
_FOREIGN_MAGIC = (
    (b"<", "a web page (an error or login page saved under this name?)"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself (run git lfs pull)"),
    (b"PK\x03\x04", "a zip or PyTorch archive"),
    (b"{", "a JSON text"),
    (b"ggml", "a GGML file of before GGUF"),
    (b"ggjt", "a GGJT file of before GGUF"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` as GGUF stores it (the row length first), `offset` from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    weight_type: WeightType
    offset: int

    @property
    def n_weights(self) -> int:
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return self.weight_type.n_bytes(self.n_weights)


@dataclass(frozen=True, slots=True)
class Field:
    """One undecoded value: its type, and for arrays the element type, length and raw bytes."""

    value_type: int
    raw: bytes
    element_type: int | None = None
    n_elements: int = 1

    def decode(self) -> Value:
        if self.element_type is None:
            return _decode_scalar(self.value_type, self.raw)
        if self.element_type == _STRING:
            return list(_decode_strings(self.raw, self.n_elements))
        return list(struct.unpack(f"<{self.n_elements}{_FORMATS[self.element_type]}", self.raw))


@dataclass(frozen=True, slots=True)
class Container:
    """One file's header. `n_bytes_needed` is where the last tensor ends; a whole file is at least that long."""

    path: Path
    version: int
    fields: dict[str, Field]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    n_bytes_file: int

    @property
    def n_bytes_needed(self) -> int:
        return self.data_offset + max((tensor.offset + tensor.n_bytes for tensor in self.tensors), default=0)

    def get(self, key: str) -> Value | None:
        field = self.fields.get(key)
        return None if field is None else field.decode()

    def get_int(self, key: str) -> int | None:
        """The value as an int. Raises GGUFError when it is there but no number."""
        value = self.get(key)
        if value is None or isinstance(value, int):
            return value
        raise GGUFError(f"{self.path}: '{key}' should be a number and is {str(value)[:40]!r}")

    def get_str(self, key: str) -> str | None:
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value
        raise GGUFError(f"{self.path}: '{key}' should be a text and is {str(value)[:40]!r}")


def read_container(path: Path) -> Container:
    """Reads the header of one GGUF file and proves that the file is whole.

    Raises GGUFError: missing, foreign, truncated ("file is N bytes, needs M") or damaged file.
    """
    try:
        with path.open("rb") as file:
            return _Parser(path, file).parse()
    except FileNotFoundError:
        raise GGUFError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise GGUFError(f"{path} is a folder, not a GGUF file") from None
    except OSError as error:
        raise GGUFError(f"{path} cannot be read: {error.strerror or error}") from error


class _Parser:
    """Walks the header once, growing its buffer only as far as the header really reaches."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.n_bytes_file = path.stat().st_size
        self.buffer = bytearray()
        self.position = 0

    def parse(self) -> Container:
        version = self._magic_and_version()
        n_tensors, n_fields = self._unpack("QQ")
        self._refuse_count("tensors", n_tensors, 24)
        self._refuse_count("fields", n_fields, 13)
        fields = dict(self._field() for _ in range(n_fields))
        tensors = tuple(self._tensor() for _ in range(n_tensors))
        alignment = self._alignment(fields)
        data_offset = -(-self.position // alignment) * alignment
        container = Container(self.path, version, fields, tensors, data_offset, self.n_bytes_file)
        self._check_tensors(container, alignment)
        return container

    # -- phases ---------------------------------------------------------------------------------------------------

    def _magic_and_version(self) -> int:
        self.buffer += self.file.read(_READ_BYTES)
        magic = bytes(self.buffer[:64])
        if magic[:4] != b"GGUF":
            raise GGUFError(f"{self.path} is not a GGUF file: {describe_foreign(magic, self.n_bytes_file)}")
        self.position = 4
        (version,) = self._unpack("I")
        if version in (2, 3):
            return int(version)
        if version & 0xFFFF == 0:
            raise GGUFError(f"{self.path} is a big-endian GGUF file; this program reads little-endian ones")
        raise GGUFError(f"{self.path} is GGUF version {version}; versions 2 and 3 can be read")

    def _field(self) -> tuple[str, Field]:
        key = self._string(_MAX_KEY_BYTES)
        (value_type,) = self._unpack("I")
        if value_type != _ARRAY:
            return key, Field(value_type, self._scalar_bytes(value_type, key))
        element_type, n_elements = self._unpack("IQ")
        start = self.position
        if element_type == _STRING:
            self._refuse_count(f"texts in '{key}'", n_elements, 8)
            self._skip_strings(n_elements)
        else:
            self._skip(n_elements * self._scalar_size(element_type, key))
        return key, Field(value_type, bytes(self.buffer[start : self.position]), element_type, n_elements)

    def _tensor(self) -> TensorInfo:
        name = self._string(_MAX_KEY_BYTES)
        (n_dimensions,) = self._unpack("I")
        if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
            raise self._damaged(f"tensor '{name}' has {n_dimensions} dimensions")
        shape = self._unpack(f"{n_dimensions}Q")
        type_id, offset = self._unpack("IQ")
        weight_type = BY_ID.get(type_id)
        if weight_type is None:
            raise GGUFError(f"{self.path}: tensor '{name}' has weight type {type_id}, which this version does not know")
        if min(shape) < 1 or not weight_type.fits(shape[0]):
            raise self._damaged(f"tensor '{name}' has shape {list(shape)}, which {weight_type.name} cannot hold")
        return TensorInfo(name, shape, weight_type, offset)

    def _alignment(self, fields: dict[str, Field]) -> int:
        field = fields.get("general.alignment")
        alignment = 32 if field is None else field.decode()
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            raise self._damaged(f"an alignment of {alignment!r}")
        return alignment

    def _check_tensors(self, container: Container, alignment: int) -> None:
        if container.n_bytes_needed > self.n_bytes_file:
            raise self._truncated(container.n_bytes_needed)
        end, last_name, seen = 0, "", set[str]()
        for tensor in sorted(container.tensors, key=lambda tensor: tensor.offset):
            if tensor.name in seen:
                raise self._damaged(f"tensor '{tensor.name}' twice")
            if tensor.offset % alignment:
                raise self._damaged(f"tensor '{tensor.name}' at an odd offset {tensor.offset}")
            if tensor.offset < end:
                raise self._damaged(f"tensors '{last_name}' and '{tensor.name}' overlap")
            seen.add(tensor.name)
            end, last_name = tensor.offset + tensor.n_bytes, tensor.name

    # -- primitives -----------------------------------------------------------------------------------------------

    def _need(self, end: int) -> None:
        """Makes the buffer reach `end`, or says how long the file should have been."""
        if end > self.n_bytes_file:
            raise self._truncated(end)
        while len(self.buffer) < end:
            chunk = self.file.read(max(_READ_BYTES, end - len(self.buffer)))
            if not chunk:
                raise self._truncated(end)
            self.buffer += chunk

    def _skip(self, n_bytes: int) -> None:
        self._need(self.position + n_bytes)
        self.position += n_bytes

    def _unpack(self, layout: str) -> tuple[int, ...]:
        start = self.position
        self._skip(struct.calcsize(f"<{layout}"))
        return struct.unpack_from(f"<{layout}", self.buffer, start)

    def _string(self, n_bytes_max: int) -> str:
        (n_bytes,) = self._unpack("Q")
        if n_bytes > n_bytes_max:
            raise self._damaged(f"a name of {n_bytes} bytes")
        start = self.position
        self._skip(n_bytes)
        return self.buffer[start : self.position].decode("utf-8", errors="replace")

    def _skip_strings(self, n_strings: int) -> None:
        # The one hot loop: 300,000 strings in a large vocabulary. Lengths are read in place, without slices.
        unpack, position = struct.Struct("<Q").unpack_from, self.position
        for _ in range(n_strings):
            if position + 8 > len(self.buffer):
                self._need(position + 8)
            position += 8 + unpack(self.buffer, position)[0]
            if position > len(self.buffer):
                self._need(position)
        self.position = position

    def _scalar_bytes(self, value_type: int, key: str) -> bytes:
        start = self.position
        if value_type == _STRING:
            (n_bytes,) = self._unpack("Q")
            start = self.position
            self._skip(n_bytes)
        else:
            self._skip(self._scalar_size(value_type, key))
        return bytes(self.buffer[start : self.position])

    def _scalar_size(self, value_type: int, key: str) -> int:
        if value_type not in _FORMATS:
            raise self._damaged(f"'{key}' has the unknown value type {value_type}")
        return struct.calcsize(_FORMATS[value_type])

    def _refuse_count(self, what: str, count: int, n_bytes_each: int) -> None:
        if count * n_bytes_each > self.n_bytes_file - self.position:
            raise self._truncated(self.position + count * n_bytes_each, f" for the {count} {what} it announces")

    def _truncated(self, n_bytes_needed: int, why: str = "") -> GGUFError:
        return GGUFError(
            f"{self.path} is not whole: the file is {self.n_bytes_file} bytes, needs {n_bytes_needed}{why}; "
            "fetch or convert it again"
        )

    def _damaged(self, what: str) -> GGUFError:
        return GGUFError(f"{self.path} has a damaged header ({what}); fetch or convert it again")


def describe_foreign(magic: bytes, n_bytes_file: int) -> str:
    if n_bytes_file < 4:
        return f"the file is {n_bytes_file} bytes, needs at least 24"
    for prefix, description in _FOREIGN_MAGIC:
        if magic.lstrip().startswith(prefix):
            return f"it is {description}"
    return f"it starts with {magic[:4]!r}"


def _decode_scalar(value_type: int, raw: bytes) -> Scalar:
    if value_type == _STRING:
        return raw.decode("utf-8", errors="replace")
    value: Scalar = struct.unpack(f"<{_FORMATS[value_type]}", raw)[0]
    return value


def _decode_strings(raw: bytes, n_strings: int) -> Iterator[str]:
    unpack, position = struct.Struct("<Q").unpack_from, 0
    for _ in range(n_strings):
        (n_bytes,) = unpack(raw, position)
        position += 8
        yield raw[position : position + n_bytes].decode("utf-8", errors="replace")
        position += n_bytes
