"""The colors of the page, in both themes."""

import re
from importlib import resources

import pytest


def luminance(color: str) -> float:
    parts = [int(color[1 + 2 * i : 3 + 2 * i], 16) / 255 for i in range(3)] if len(color) == 7 else [1.0] * 3
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_text_and_lines_stand_out_in_both_themes(theme: int) -> None:
    style = (resources.files("flexpredict.reports") / "static" / "page.css").read_text()
    colors = {name: pair[theme] for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", style)}

    def contrast(front: str, behind: str) -> float:
        light, dark = sorted((luminance(colors[front]), luminance(colors[behind])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    for behind in ("page", "card"):
        for text in ("ink", "soft", "accent", "good", "bad", "warn"):
            assert contrast(text, behind) >= 4.5, (text, behind)  # WCAG AA, text
        for number in range(8):
            assert contrast(f"run-{number}", behind) >= 3, number  # WCAG AA, graphics
    assert contrast("warn", "warn-page") >= 4.5 and contrast("ink", "marked") >= 4.5
