"""User errors, explained so that they can be fixed."""

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """Bad input. The message says what was wrong, where, and what to do; the CLI prints it and exits with 2."""


def printable(name: str) -> str:
    """A file's name on one line and in characters that any terminal and file can take."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in name)


def in_a_line(error: BaseException, most: int = 400) -> str:
    """The message of another library's error, which may be a page long, on one line."""
    return " ".join(str(error).split())[:most]


def did_you_mean(word: str, known: Iterable[str], most: int = 3) -> str:
    """`" Did you mean 'a' or 'b'?"`, or empty if no known word is similar."""
    near = difflib.get_close_matches(word, list(known), n=most, cutoff=0.6)
    if not near:
        return ""
    return " Did you mean " + " or ".join(f"'{name}'" for name in near) + "?"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one; None if none is."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def some_of(names: Sequence[object], most: int = 3) -> str:
    """The first few names, and how many more there are: "a, b, c and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
