"""Shared parts of picture sheets: colors, a font, text that fits, pictures in the middle of their tiles."""

import unicodedata
from functools import lru_cache

from PIL import Image, ImageFont, ImageOps

INK, SOFT, PAPER, TILE = "#1d2129", "#69707d", "#ffffff", "#f2f3f5"


def paste_fitted(sheet: Image.Image, picture: Image.Image, corner: tuple[int, int], tile: tuple[int, int]) -> None:
    """Paste a picture into the middle of its tile, as large as it fits. corner: left, top; tile: width, height."""
    left, top = corner
    sheet.paste(TILE, (left, top, left + tile[0], top + tile[1]))
    fitted = ImageOps.contain(picture, tile, Image.Resampling.BICUBIC)
    sheet.paste(fitted, (left + (tile[0] - fitted.width) // 2, top + (tile[1] - fitted.height) // 2))


def shortened(text: str, size: int, room: int) -> str:
    """The text, cut in the middle if it is wider than `room`: long paths differ at their ends."""
    text = _drawable(text)
    if font(size).getlength(text) <= room:
        return text
    kept = len(text)
    while kept > 1 and font(size).getlength(short := f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}") > room:
        kept -= 1
    return short


@lru_cache  # PIL unpacks its font each time it is loaded.
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _drawable(text: str) -> str:
    """PIL's own font has hardly more than ASCII: accents are dropped, and other letters become question marks."""
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    kept = (letter for letter in letters if not unicodedata.combining(letter))
    return "".join(letter if " " <= letter <= "~" or letter == "·" else "?" for letter in kept)
