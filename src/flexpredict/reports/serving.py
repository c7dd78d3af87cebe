"""A local site for the runs below a folder: a list to sort, filter and choose from, and a page of the chosen runs.

The site is read-only. It never sends files: pages are made here from the numbers and pictures of runs, and URLs name
runs only as the list does. Nothing here imports torch, so it starts at once.
"""

import ipaddress
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from flexpredict.reports.curves import curve_data
from flexpredict.reports.page import Subject, render_page
from flexpredict.reports.rendering import render
from flexpredict.reports.run_list import COLUMNS, MOST_COMPARED, RunList, last_change, listed
from flexpredict.reports.views.stored import Views, stored_views
from flexpredict.runs.run_record import Run

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def make_site(root: Path, host: str) -> Starlette:
    """The site of the runs below `root`."""
    site = _Site(RunList(root))
    return Starlette(
        routes=[
            Route("/", site.overview),
            Route("/runs.json", site.runs),
            Route("/report", site.report),
            Route("/curves.json", site.curves),
        ],
        middleware=[
            # Against DNS rebinding: a foreign page could resolve its host name to this machine and read it all.
            Middleware(TrustedHostMiddleware, allowed_hosts=_allowed_hosts(host), www_redirect=False),
            Middleware(GZipMiddleware),
        ],
    )


def _allowed_hosts(host: str) -> list[str]:
    return ["localhost", "127.0.0.1", "[::1]"] if is_loopback(host) else ["*"]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Site:
    """The pages. Plain functions and not coroutines, so that each request reads files in its own thread."""

    def __init__(self, runs: RunList) -> None:
        self._runs = runs

    def overview(self, request: Request) -> Response:
        styles, scripts = ("page.css", "runs.css"), ("numbers.js", "elements.js", "theme.js", "runs.js")
        page = render(
            "runs.html.j2",
            styles,
            scripts,
            policy="; connect-src 'self'",
            title=self._runs.root.name,
            columns=COLUMNS,
            runs=self._listed(),
            most=MOST_COMPARED,
        )
        return HTMLResponse(page, headers=_HEADERS)

    def runs(self, request: Request) -> Response:
        return _json(self._listed())

    def report(self, request: Request) -> Response:
        return self._chosen(request, self._page)

    def curves(self, request: Request) -> Response:
        return self._chosen(request, lambda names, runs: _json(curve_data(runs, names)))

    def _listed(self) -> list[dict[str, Any]]:
        runs = self._runs.read()
        return [listed(name, run, last_change(self._runs.folder(name))) for name, run in runs.items()]

    def _chosen(self, request: Request, answer: Callable[[Sequence[str], Sequence[Run]], Response]) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        runs = self._runs.read()
        if not names or len(names) > MOST_COMPARED or any(name not in runs for name in names):
            return Response("There is no such run.", status_code=404, media_type="text/plain", headers=_HEADERS)
        return answer(names, [runs[name] for name in names])

    def _page(self, names: Sequence[str], runs: Sequence[Run]) -> Response:
        subjects = [Subject(name, run) for name, run in zip(names, runs, strict=True)]
        views = [stored_views(self._runs.folder(name) / "report.html") for name in names]
        return HTMLResponse(render_page(subjects, Views.joined(views), served=True), headers=_HEADERS)


def _json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False), media_type="application/json", headers=_HEADERS)
