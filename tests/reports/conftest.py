"""A browser for the pages, where there is one."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OpenPage = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens a page from disk, or an address; fails if it complains, or asks for anything else."""
    contexts, complaints = [], []

    def open_it(where: Path | str, **options: Any) -> Any:
        address = where if isinstance(where, str) else where.resolve().as_uri()
        own = address.split("?")[0].rsplit("/", 1)[0]
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda asked: asked.url.startswith((own, "data:")) or complaints.append(asked.url))
        page.goto(address)
        page.evaluate("window.flexpredict?.ready")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
