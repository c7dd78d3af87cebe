"""Messages name settings, `optimizer.lr=-1`; on a command line these are flags, `--optimizer.lr -1`."""

import re
from collections.abc import Collection

_NAME = r"[a-z]\w*(?:\.\w+)*"
_MENTION = re.compile(
    rf"(?<![\w.'/,:-])(?:(?P<given>{_NAME})=(?P<true>True\b)?|`(?P<quoted>{_NAME})`|(?P<alone>{_NAME})(?!['/\w.]\w))"
)


def with_flags(text: str, settings: Collection[str]) -> str:
    """The same text with flags where it names settings: name=VALUE, name=True, `name`, or some_name by itself."""

    def flag(mention: re.Match[str]) -> str:
        name = mention["given"] or mention["quoted"] or mention["alone"]
        # A name without a dot or an underscore may be an English word.
        if name not in settings or (mention["alone"] and not re.search(r"[._]", name)):
            return mention[0]
        return f"--{name} " if mention["given"] and not mention["true"] else f"--{name}"

    return _MENTION.sub(flag, text)
