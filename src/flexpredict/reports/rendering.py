"""Renders templates, styles and scripts into one self-contained HTML file.

Names of runs, files and classes are not trusted. Templates escape all values, data goes into blocks that cannot end
early, and the page's security policy lets the browser run no scripts but those written here.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from flexpredict.errors import printable

_STATIC = resources.files("flexpredict.reports") / "static"
_BREAKS = re.compile(r"[_/]|\.(?!\d)")
CHARTING_LIBRARY = "vendor/uPlot.iife.min.js"
_LICENSE = "vendor/uPlot.LICENSE"


def render(template: str, style: tuple[str, ...], script: tuple[str, ...], policy: str = "", **content: Any) -> str:
    """The page of a template.

    Args:
        template: its file name.
        style, script: files of `static`, in this order. All scripts but the charting library share one module.
        policy: what else the page may do, as directives of a Content-Security-Policy.
        content: variables of the template.
    """
    # A page contains the charting library, whose license must be included.
    scripts = [("", f"/*\n{_static(_LICENSE)}*/\n{_static(name)}") for name in script if name == CHARTING_LIBRARY]
    scripts.append(("module", "\n".join(_static(name) for name in script if name != CHARTING_LIBRARY)))
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup("\n".join(_static(name) for name in style)),
            scripts=[(kind, Markup(code)) for kind, code in scripts],
            policy=security_policy(*(code for _, code in scripts)) + policy,
            **content,
        )
    )


def security_policy(*scripts: str) -> str:
    """A Content-Security-Policy: nothing is loaded, and only these scripts run."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data:; form-action 'none'"


def json_block(value: Any) -> Markup:
    """JSON for a <script type="application/json">: no `<` in it, so that nothing can end the block."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def breakable(name: object) -> Markup:
    """A long name or value with line break opportunities, never inside a word, an option or a number."""
    text = _BREAKS.sub(r"\g<0><wbr>", str(escape(printable(str(name)))))
    words = (f'<span class="word">{word}</span>' if "-" in word else word for word in text.split(" "))
    return Markup(" ".join(words))


@cache
def _static(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("flexpredict.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Invisible characters in a name could reorder or hide the text around it.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"json_block": json_block, "breakable": breakable}
    return environment
