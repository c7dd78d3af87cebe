"""`report` and `serve`."""

from dataclasses import dataclass
from pathlib import Path

from flexpredict.errors import UserError
from flexpredict.settings.run import Names, as_list
from flexpredict.showing import SimpleResult


@dataclass(frozen=True)
class ReportResult(SimpleResult):
    """The page that was written."""

    page: Path

    @property
    def files(self) -> list[Path]:
        return [self.page]


def report(run: Names, *, out: str | Path | None = None, images: str | None = None) -> ReportResult:
    """Write one HTML file about runs: curves, what the model sees and predicts, results and recipes.

    Several runs are overlaid and compared. A run writes its own page when it ends, and new curves at checkpoints.
    Encoders that have no run folder get the same page without curves, and need `images`.

    Args:
        run: run folders; or checkpoints, timm:NAME and hf:NAME.
        out: the page to write (default: report.html in the run folder, or here).
        images: images to look at (default: those that the run was trained on).
    """
    from flexpredict.reports.writing import write_report

    return ReportResult(write_report(as_list(run), None if out is None else Path(out), images))


@dataclass(frozen=True)
class ServeResult(SimpleResult):
    """The folder that was served."""

    folder: Path


def serve(folder: str | Path = "runs", *, port: int = 8765, host: str = "127.0.0.1") -> ServeResult:
    """Show all runs below a folder in a browser: to sort, filter, compare, and to watch runs in progress.

    Only reads, nothing outside the folder, and executes nothing in it. Ends with Ctrl-C.

    Args:
        folder: where the runs are.
        port: port of the site.
        host: the address to listen at. The default can be reached from this machine only; 0.0.0.0 lets everyone who
            can reach this machine see the runs.
    """
    if not 1 <= port <= 65535:
        raise UserError(f"port={port} is not a port. Use one from 1024 to 65535.")
    try:
        import uvicorn

        from flexpredict.reports.serving import is_loopback, make_site
    except ImportError as error:
        raise UserError("serve needs starlette and uvicorn: pip install 'flexpredict[serve]'.") from error
    site = make_site(Path(folder), host)
    shown = f"[{host}]" if ":" in host else host
    print(f"Runs of {Path(folder).resolve()}: http://{shown}:{port} (Ctrl-C ends it)", flush=True)
    if not is_loopback(host):
        print(f"Warning: host={host} lets others who can reach this machine see the runs.", flush=True)
    try:
        uvicorn.run(site, host=host, port=port, log_level="warning")
    except SystemExit as error:  # uvicorn has printed why
        raise UserError(f"Cannot listen at {host}:{port}. Choose another port.") from error
    return ServeResult(Path(folder))
