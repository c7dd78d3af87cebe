"""The few numbers at the top of the page."""

from collections.abc import Callable
from dataclasses import dataclass

from flexpredict.progress import duration
from flexpredict.reports.numbers import format_number, percent, said
from flexpredict.reports.sections import METRICS
from flexpredict.runs.metrics import PROBES
from flexpredict.runs.run_record import Run
from flexpredict.runs.series import Series


@dataclass(frozen=True)
class KeyNumber:
    """A number with its name and a note."""

    label: str
    value: str
    note: str = ""


def key_numbers(run: Run) -> list[KeyNumber]:
    """The key numbers that are known for this run."""
    found = (_accuracy, _loss, _rank, _location_share, _location_blur, _images, _speed, _time)
    return [number for find in found for number in [find(run)] if number is not None and number.value]


def key_table(runs: list[Run]) -> tuple[list[str], list[list[str]]]:
    """Key numbers of several runs: names, and the values of each run."""
    rows = [{number.label: number.value for number in key_numbers(run)} for run in runs]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[row.get(name, "") for name in names] for row in rows]


def _loss(run: Run) -> KeyNumber | None:
    return _last_and_first(run, "loss", "Loss", format_number)


def _images(run: Run) -> KeyNumber | None:
    if not run.images:
        return None
    batch = said(run.config.get("batch_size"))
    return KeyNumber("Images seen", format_number(run.images), f"{format_number(run.steps)} steps of {batch}")


def _speed(run: Run) -> KeyNumber | None:
    speed = run.images / run.seconds if run.images and run.seconds else _series(run, "images_per_second").last
    wait = _series(run, "data_wait").last
    note = "" if wait is None else f"{_percent('data_wait', wait)} of the time waiting"
    return None if speed is None else KeyNumber("Images per second", format_number(speed), note)


def _time(run: Run) -> KeyNumber | None:
    return KeyNumber("Training time", duration(run.seconds), "at the logged speed") if run.seconds else None


def _rank(run: Run) -> KeyNumber | None:
    return _last_and_first(run, "target_rank", "Target rank", format_number)


def _location_share(run: Run) -> KeyNumber | None:
    return _last_and_first(run, "location_share", "Location share", lambda value: _percent("location_share", value))


def _location_blur(run: Run) -> KeyNumber | None:
    blur, kept = _series(run, "location_blur").last, _series(run, "location_kept").last
    note = "" if kept is None else f"{_percent('location_kept', kept)} keep their position"
    return None if blur is None else KeyNumber("Location blur", f"{blur:.2f} patches", note)


def _accuracy(run: Run) -> KeyNumber | None:
    for key in PROBES:
        values = [value for _, value in _series(run, key).points()]
        if values:
            first, last, best = (_percent(key, value) for value in (values[0], values[-1], max(values)))
            return KeyNumber(METRICS[key].title, last, f"{first} at the start, {best} at best")
    return None


def _last_and_first(run: Run, key: str, label: str, written: Callable[[float], str]) -> KeyNumber | None:
    series = _series(run, key)
    if series.last is None:
        return None
    return KeyNumber(
        label, written(series.last), "" if series.first is None else f"{written(series.first)} at the start"
    )


def _series(run: Run, key: str) -> Series:
    return run.series.get(key, Series())


def _percent(key: str, value: float) -> str:
    return percent(value * METRICS[key].factor([value]) / 100)
