"""Finds messages and titles that hold every word of a query: substrings, without regard to case, any script.

A query is words between blanks; "words in quotes" are one phrase; every other sign is itself, so no query is an
error. The trigram index of FTS5 answers for words of three characters or more; shorter words, messages not indexed
yet, and a SQLite without FTS5 or trigrams (before 3.34) are answered by reading the texts: slower, same answer.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import unicodedata
from collections.abc import Sequence

from ..records import clean_text

_TERM = re.compile(r'"([^"]+)"|(\S+)')
_EXCERPT_CHARS = 60  # on either side of the first word found
_BATCH = 500
_MOST_TRIGRAMS = 64


def terms_of(query: str) -> tuple[str, ...]:
    """The folded words and phrases of a query, in order, each once."""
    found = (folded(match[1] or match[2]) for match in _TERM.finditer(query))
    return tuple(dict.fromkeys(term for term in found if term.strip()))


def folded(text: str) -> str:
    """The form in which texts are compared: compatibility-composed (full-width as ASCII), without case, without NUL."""
    return unicodedata.normalize("NFKC", clean_text(text)).casefold().replace("\0", "\ufffd")


def has_index(connection: sqlite3.Connection) -> bool:
    """Makes the index when it is missing and can be made; False where this SQLite has no trigram index.

    Needs a write transaction.
    """
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_text'").fetchone()
    try:
        if known is None:
            connection.execute(
                "CREATE VIRTUAL TABLE message_text USING"
                " fts5(text, tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0)"
            )
            connection.execute("UPDATE message SET indexed = 0")
        connection.execute("SELECT rowid FROM message_text LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if "no such" not in str(error) and "error in tokenizer" not in str(error):
            raise
        return False
    return True


def index_some(connection: sqlite3.Connection) -> int:
    """Indexes up to 500 finished messages that are not indexed yet. Gives how many. Needs a write transaction."""
    if not has_index(connection):
        return 0
    rows = connection.execute(
        "SELECT id, text FROM message WHERE indexed = 0 AND status != 'streaming' LIMIT ?", (_BATCH,)
    ).fetchall()
    for number, text in rows:
        connection.execute("DELETE FROM message_text WHERE rowid = ?", (number,))
        connection.execute("INSERT INTO message_text (rowid, text) VALUES (?, ?)", (number, folded(text)))
        connection.execute("UPDATE message SET indexed = 1 WHERE id = ?", (number,))
    return len(rows)


def unindex_purged(connection: sqlite3.Connection) -> None:
    """Removes purged texts from the index as well, and what its own log keeps of them."""
    if has_index(connection):
        connection.execute("DELETE FROM message_text WHERE rowid NOT IN (SELECT id FROM message)")
        connection.execute("INSERT INTO message_text (message_text) VALUES ('optimize')")


def find_messages(
    connection: sqlite3.Connection, terms: Sequence[str], limit: int, thoughts: bool = False
) -> list[int]:
    """Ids of messages, newest first, that hold every term and are not deleted. Thoughts are not in the index."""
    connection.create_function("holds_all", 1, lambda text: _holds_all(text, terms), deterministic=True)
    said = "m.thought || char(10) || m.text" if thoughts else "m.text"
    visible = f"m.deletion IS NULL AND c.deletion IS NULL AND holds_all({said}) ORDER BY m.id DESC LIMIT ?"
    joined = "SELECT m.id FROM message m JOIN conversation c ON c.id = m.conversation_id WHERE"
    trigrams = [] if thoughts else _trigrams(terms)
    if trigrams:
        phrases = " ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
        indexed = "(m.indexed = 0 OR m.id IN (SELECT rowid FROM message_text WHERE message_text MATCH ?))"
        try:
            rows = connection.execute(f"{joined} {indexed} AND {visible}", (phrases, limit)).fetchall()
        except sqlite3.DatabaseError:  # no FTS5 here, or a damaged index: the texts themselves still answer
            rows = connection.execute(f"{joined} {visible}", (limit,)).fetchall()
    else:
        rows = connection.execute(f"{joined} {visible}", (limit,)).fetchall()
    return [int(row[0]) for row in rows]


def find_titles(connection: sqlite3.Connection, terms: Sequence[str], limit: int) -> list[int]:
    """Ids of conversations, last used first, whose title holds every term."""
    rows = connection.execute("SELECT id, title FROM conversation WHERE deletion IS NULL ORDER BY sequence DESC")
    return [int(number) for number, title in rows if _holds_all(title, terms)][:limit]


def excerpt(text: str, terms: Sequence[str]) -> str:
    """The neighbourhood of the first term found, on one line, with an ellipsis where text was left out."""
    start, end = _first_place(text, terms)
    first, last = max(0, start - _EXCERPT_CHARS), min(len(text), end + _EXCERPT_CHARS)
    line = re.sub(r"\s+", " ", text[first:last]).strip()
    return ("…" if first else "") + line + ("…" if last < len(text) else "")


def _trigrams(terms: Sequence[str]) -> list[str]:
    """What the index is asked for: it only narrows the choice, so the first ones of a long query are enough.

    Without positions (detail = none) the index is several times smaller, and `holds_all` looks at the texts anyway.
    """
    found = (term[place : place + 3] for term in terms for place in range(len(term) - 2))
    return list(itertools.islice(dict.fromkeys(found), _MOST_TRIGRAMS))


def _first_place(text: str, terms: Sequence[str]) -> tuple[int, int]:
    places = (re.search(re.escape(term), text, re.IGNORECASE) for term in terms)
    found = [(place.start(), place.end()) for place in places if place]
    return min(found, default=(0, 0))  # a term that only matches folded has no place of its own


def _holds_all(text: str, terms: Sequence[str]) -> bool:
    body = folded(text)
    return all(term in body for term in terms)
