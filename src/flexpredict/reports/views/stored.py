"""The views of models on a page, which can also be read back from an earlier page as plain data."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_MODELS = 4  # a page of more would be too large
_BLOCK = b"view-data"
_LARGEST = 32_000_000  # bytes: pages stay below 10 MB
_START = re.compile(rb'<script type="application/json" id="' + _BLOCK + rb'">')


@dataclass
class Views:
    """Views of several models. sets: of images, by key. models: in the order of the page; None if one has no view."""

    sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: list[dict[str, Any] | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # why something is missing

    def add(self, model: dict[str, Any], images: dict[str, Any]) -> None:
        self.sets[images["key"]] = images
        self.models.append({**model, "set": images["key"]})

    @classmethod
    def joined(cls, parts: "Sequence[Views]") -> "Views":
        """The views of several pages of one model each."""
        views = cls()
        for part in parts:
            views.sets |= part.sets
            views.models.append(part.models[0] if part.models and len(views.models) < MOST_MODELS else None)
        views.sets = {
            key: images for key, images in views.sets.items() if key in {m["set"] for m in views.models if m}
        }
        return views


def stored_views(page: Path) -> Views:
    """The views stored in a page; empty if there is no page or it has none."""
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
