"""Colors and text of the pictures that show many images."""

import unicodedata
from functools import lru_cache

from PIL import ImageFont

INK, SOFT, PAPER, TILE = "#1d2129", "#69707d", "#ffffff", "#f2f3f5"


def shortened(text: str, size: int, room: int) -> str:
    """The text, or as much of its two ends as there is room for: long paths differ at their ends."""
    text = drawable(text)
    if font(size).getlength(text) <= room:
        return text
    kept = len(text)
    while kept > 1 and font(size).getlength(short := f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}") > room:
        kept -= 1
    return short


def drawable(text: str) -> str:
    """PIL's own font has hardly more than ASCII: accents are dropped, and other letters become question marks."""
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    kept = (letter for letter in letters if not unicodedata.combining(letter))
    return "".join(letter if " " <= letter <= "~" or letter == "·" else "?" for letter in kept)


@lru_cache  # as the font is unpacked anew each time it is loaded
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
