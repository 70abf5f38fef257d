"""The whole error tree. Each message says what failed, the number seen, and what to try.

EdgeSpecQuantError
├── UsageError              the caller asked for something that cannot be (bad flag, bad value)
│   └── PromptTooLongError  the prompt has more tokens than the context holds
├── SetupError              setup cannot go on: something is missing here, or pip or the compiler failed
├── SettingsError           settings file or environment holds something wrong
├── EngineError             the native engine refused or broke
│   ├── EngineMissingError  llama_cpp is not installed or cannot be loaded
│   ├── EngineUnsafeError   the self-test crashed and no safe setting was found
│   ├── ModelLoadError      a GGUF file could not be loaded
│   ├── ContextError        a context could not be made (memory, odd sizes)
│   ├── DecodeError         llama_decode failed
│   │   └── ContextFullError  no KV cell is free
│   ├── AbortedError        a decode was stopped on request
│   └── QuantizeError       llama_model_quantize failed
├── FileError               a file is missing, truncated, foreign or in the way
│   ├── GGUFError           not a GGUF file, or not a whole one
│   ├── CheckpointError     a source checkpoint cannot be used
│   ├── DiskFullError       not enough space, before or while writing
│   └── StoreError          the conversation store
├── FamilyError             siblings that do not belong together, manifest trouble
│   └── VocabularyError     two vocabularies differ
├── TemplateError           the chat template cannot be parsed or rendered
├── GrammarError            a grammar or JSON schema cannot be used
└── PlanError               nothing fits this machine
"""

from __future__ import annotations


class EdgeSpecQuantError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(EdgeSpecQuantError):
    """The caller asked for something that cannot be."""


class PromptTooLongError(UsageError):
    """The prompt has more tokens than the context holds."""


class SetupError(EdgeSpecQuantError):
    """Setup cannot go on: something is missing on this machine, or pip or the compiler failed."""


class SettingsError(EdgeSpecQuantError):
    """A settings file or an environment variable holds something wrong."""


class EngineError(EdgeSpecQuantError):
    """The native engine refused or broke."""


class EngineMissingError(EngineError):
    """llama_cpp is not installed or its libraries cannot be loaded."""


class EngineUnsafeError(EngineError):
    """The self-test crashed and no safe setting was found."""


class ModelLoadError(EngineError):
    """A GGUF file could not be loaded."""


class ContextError(EngineError):
    """A context could not be made."""


class DecodeError(EngineError):
    """llama_decode failed."""


class ContextFullError(DecodeError):
    """No KV cell is free for the batch."""


class AbortedError(EngineError):
    """A decode was stopped on request; the KV cache keeps what was decoded before it."""


class QuantizeError(EngineError):
    """llama_model_quantize failed."""


class FileError(EdgeSpecQuantError):
    """A file is missing, truncated, foreign or in the way."""


class GGUFError(FileError):
    """Not a GGUF file, or not a whole one."""


class CheckpointError(FileError):
    """A source checkpoint cannot be used."""


class DiskFullError(FileError):
    """Not enough space, before or while writing."""


class StoreError(FileError):
    """The conversation store cannot be read or written."""


class FamilyError(EdgeSpecQuantError):
    """Siblings that do not belong together, or a manifest that lies."""


class VocabularyError(FamilyError):
    """Two vocabularies differ; the message names the first differing token."""


class TemplateError(EdgeSpecQuantError):
    """The chat template cannot be parsed or rendered."""


class GrammarError(EdgeSpecQuantError):
    """A grammar or JSON schema cannot be used."""


class PlanError(EdgeSpecQuantError):
    """Nothing fits this machine."""


def told(error: EdgeSpecQuantError) -> str:
    """One line for a terminal: the message, and the entry of the documentation that says more."""
    return f"error: {error} [docs/troubleshooting.md#{type(error).__name__.lower()}]"
