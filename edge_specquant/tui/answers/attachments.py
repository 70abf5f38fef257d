"""A text file (or a very long paste) that goes along with a message: read, checked against the context, written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import FileError, UsageError
from ...units import format_bytes

MAX_BYTES = 4 << 20
BYTES_A_TOKEN = 3.5  # a careful guess until the engine has counted
_RESERVE = 64  # tokens of context for the template and the beginning of an answer


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text with a name; n_tokens None until counted."""

    name: str
    text: str
    n_tokens: int | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes as UTF-8."""
        return len(self.text.encode("utf-8", "replace"))

    @property
    def likely_tokens(self) -> int:
        """The count, or a guess from the size."""
        return self.n_tokens if self.n_tokens is not None else round(self.n_bytes / BYTES_A_TOKEN)

    def counted(self, n_tokens: int) -> Attachment:
        """With the engine's count."""
        return replace(self, n_tokens=n_tokens)

    def describe(self) -> str:
        """'notes.txt, 1.20 KiB, about 351 tokens'."""
        about = "" if self.n_tokens is not None else "about "
        return f"{self.name}, {format_bytes(self.n_bytes)}, {about}{self.likely_tokens} tokens"

    def problem(self, n_ctx: int | None) -> str | None:
        """Why it cannot be sent, or None."""
        if n_ctx is None or self.likely_tokens + _RESERVE <= n_ctx:
            return None
        return (
            f"{self.describe()}: the context holds {n_ctx} tokens; attach a smaller part, or start with a larger --ctx"
        )


def read_attachment(path_text: str) -> Attachment:
    """Reads a text file. Raises FileError, UsageError for a folder, a binary or a huge file."""
    path = Path(path_text.strip()).expanduser()
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file in it")
        n_bytes = path.stat().st_size
        if n_bytes > MAX_BYTES:
            raise UsageError(f"{path} has {format_bytes(n_bytes)}; at most {format_bytes(MAX_BYTES)} can be attached")
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{path_text!r} is no file name: {error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text (byte {error.start} is not UTF-8); attach a text file") from error
    if "\0" in text:
        raise UsageError(f"{path} is not text (it holds NUL bytes); attach a text file")
    return Attachment(path.name, text.replace("\r\n", "\n"))


def with_attachments(text: str, attachments: tuple[Attachment, ...]) -> str:
    """The message as it is sent: each attachment in a fence longer than any inside it, then the text."""
    parts = [f"{item.name}:\n{_fence(item.text)}\n{item.text.rstrip()}\n{_fence(item.text)}" for item in attachments]
    return "\n\n".join([*parts, text]) if text else "\n\n".join(parts)


def _fence(text: str) -> str:
    longest = max((len(line) - len(line.lstrip("`")) for line in text.splitlines()), default=0)
    return "`" * max(3, longest + 1)
