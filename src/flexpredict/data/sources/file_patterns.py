"""Names that stand for several files: shards-{000..127}.tar, shards-*.tar."""

import glob
import os
import re
from itertools import product

from flexpredict.errors import UserError


def matching_files(pattern: str) -> list[str]:
    """Files that match: braces first, where every name must exist, then * and ?."""
    found = []
    for name in expand_braces(os.path.expanduser(pattern)):
        matches = glob.glob(name) if glob.has_magic(name) else [name] if "{" in pattern else []
        if matches == [name] and not os.path.isfile(name):
            raise UserError(f"{name} is missing, which {pattern} names. Complete the shards, or name fewer.")
        found += matches
    return found


def expand_braces(pattern: str) -> list[str]:
    """shards-{00..02}.tar -> shards-00.tar, shards-01.tar, shards-02.tar; {a,b} likewise."""
    parts = re.split(r"(\{[^{}]*\})", pattern)
    choices = []
    for part in parts:
        span = re.fullmatch(r"\{(\d+)\.\.(\d+)\}", part)
        if span:
            first, last = span.groups()
            numbers = range(int(first), int(last) + 1)
            choices.append([str(number).zfill(len(first)) for number in numbers])
        elif part.startswith("{") and "," in part:
            choices.append(part[1:-1].split(","))
        else:
            choices.append([part])
    return ["".join(choice) for choice in product(*choices)]
