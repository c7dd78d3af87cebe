"""What an earlier page shows of its models, read back from it: data only, whatever else is in the file."""

import json
import re
from pathlib import Path
from typing import Any

from flexpredict.reports.views.looking import Views

BLOCK = "view-data"
_LARGEST = 32_000_000  # bytes: pages stay below 10 MB
_START = re.compile(rb'<script type="application/json" id="' + BLOCK.encode() + rb'">')


def stored_views(page: Path) -> Views:
    """The views of a page; none where there is no page, or none in it."""
    try:
        if not page.is_file() or page.stat().st_size > _LARGEST:
            return Views()
        content = page.read_bytes()
    except OSError:
        return Views()
    start = _START.search(content)
    if start is None:
        return Views()
    end = content.find(b"</script>", start.end())
    try:
        return _checked(json.loads(content[start.end() : end]))
    except (ValueError, RecursionError):
        return Views()


def _checked(data: Any) -> Views:
    sets, models = (data.get("sets"), data.get("models")) if isinstance(data, dict) else (None, None)
    if not isinstance(sets, dict) or not isinstance(models, list):
        return Views()
    whole = [model if _is_whole(model) and model["set"] in sets else None for model in models]
    return Views(sets, whole)


def _is_whole(model: Any) -> bool:
    """Whether this version of the page can show it."""
    parts = {"what", "set", "grid", "layers", "masks", "positions", "pictures"}
    return isinstance(model, dict) and parts <= set(model)
