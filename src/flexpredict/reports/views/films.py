"""Small versions of the films that `flexpredict evaluate davis` wrote into a run folder, for the page."""

import base64
import io
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from flexpredict.data.sources.image_source import evenly_spaced

_MOST_FILMS, _FRAMES, _WIDTH = 4, 12, 240
_MILLISECONDS = 160  # per frame: at the original rate, so few frames would be too fast to follow


def small_films(run: Path) -> list[dict[str, str]]:
    """Name and data URI of the first few films in RUN/overlays or RUN/*/overlays; damaged ones are left out."""
    films = []
    for path in sorted([*run.glob("overlays/*.gif"), *run.glob("*/overlays/*.gif")])[:_MOST_FILMS]:
        try:
            films.append({"name": path.stem, "uri": _small(path)})
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
            continue
    return films


def _small(path: Path) -> str:
    frames = []
    with Image.open(path) as film:
        for number in evenly_spaced(getattr(film, "n_frames", 1), _FRAMES):
            film.seek(number)
            frame = film.convert("RGB")
            frame.thumbnail((_WIDTH, _WIDTH))
            frames.append(frame)
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], duration=_MILLISECONDS, loop=0, quality=60)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
