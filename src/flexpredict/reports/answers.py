"""The questions people ask most of a run, answered from its own numbers, each beside the curves that show it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flexpredict.reports.numbers import format_number, percent
from flexpredict.runs.run_record import Run
from flexpredict.runs.series import Point, Series

Verdict = Literal["good", "watch", "bad", "open"]

_RISE = 1.05  # a loss above its lowest by less than this has not risen
_NEAR = 0.9  # of the best: what a healthy rank or spread keeps
_COLLAPSED = 0.25  # of the best: what the training loop warns of as well
_LITTLE_PLACE, _MUCH_PLACE = 0.3, 0.6  # location shares
_WAITING = 0.1  # of the time
_SPIKE = 10.0  # times the usual gradient norm
_SPIKES = 3


@dataclass(frozen=True)
class Answer:
    """section: key of the section whose curves show it. question: empty where it is the title of that section."""

    section: str
    verdict: Verdict
    text: str
    question: str = ""


def answers(run: Run) -> list[Answer]:
    """All that the log of a run can tell."""
    found = (_learning, _rising_loss, _which_encoder, _collapsing, _only_place, _noise, _gradients, _speed)
    return [answer for question in found for answer in question(run)]


def _learning(run: Run) -> Iterator[Answer]:
    probed = _probe(run)
    loss = _means(run, "loss")
    if probed is not None:
        name, points = probed
        (_, first), (_, last), best = points[0], points[-1], max(points, key=lambda point: point[1])
        text = f"{name} went from {percent(first)} to {percent(last)}"
        if len(points) < 2:
            yield Answer("learning", "open", f"{name} is {percent(last)} so far: too early to tell.")
        elif last < best[1] - 0.02:
            yield Answer(
                "learning",
                "watch",
                f"{text}, after a best of {percent(best[1])} at step {best[0]:,.0f}: it learned, and has been losing "
                "some of it since.",
            )
        elif last > first + 0.02:
            yield Answer("learning", "good", f"Yes: {text}.")
        else:
            yield Answer("learning", "bad", f"Hardly: {text}.")
    elif loss:
        (_, first), (_, last) = loss[0], loss[-1]
        yield Answer(
            "learning",
            "open",
            f"The loss went from {format_number(first)} to {format_number(last)}, which alone does not tell. Train "
            "with --probe_data and any labeled images to know; the pictures on this page show what it sees.",
        )


def _rising_loss(run: Run) -> Iterator[Answer]:
    loss = _means(run, "loss")
    if len(loss) < 4:
        return
    lowest = min(loss, key=lambda point: point[1])
    later = [value for step, value in loss if step >= lowest[0]]
    if loss[-1][1] <= _RISE * lowest[1] or len(later) < 2:
        return
    question = "Why does my loss rise?"
    rose = f"It rose from {format_number(lowest[1])} at step {lowest[0]:,.0f} to {format_number(loss[-1][1])}"
    before, now = _at(run, "target_rank", lowest[0]), _last(run, "target_rank")
    if before is None or now is None:
        yield Answer(
            "learning", "open", f"{rose}. Targets change while they are learned, so that may be right.", question
        )
    elif now >= _NEAR * before:
        yield Answer(
            "learning",
            "good",
            f"{rose}, while the rank of the targets went from {format_number(before)} to {format_number(now)}: they "
            "became richer and harder to predict. The target encoder moves with the encoder, so losses of different "
            "steps do not compare.",
            question,
        )
    else:
        yield Answer(
            "learning",
            "bad",
            f"{rose}, while the rank of the targets fell from {format_number(before)} to {format_number(now)}: the "
            "targets did not become harder. Try a lower learning rate or a longer warm-up.",
            question,
        )


def _which_encoder(run: Run) -> Iterator[Answer]:
    if not run.encoders:
        return
    question = "Which encoder do I take?"
    probed = _probe(run)
    if "encoder_best.safetensors" in run.encoders and probed is not None:
        name, points = probed
        best, last = max(points, key=lambda point: point[1]), points[-1]
        if best[1] > last[1] + 0.01:
            yield Answer(
                "learning",
                "watch",
                f"encoder_best.safetensors, saved at step {best[0]:,.0f} with a {name} of {percent(best[1])}; the "
                f"last one, encoder.safetensors, has {percent(last[1])}.",
                question,
            )
            return
    role = "the encoder" if run.config.get("method") == "mae" else "the target encoder, the moving average"
    yield Answer("learning", "good", f"encoder.safetensors: {role} of the last checkpoint.", question)


def _collapsing(run: Run) -> Iterator[Answer]:
    for key, name in (("target_rank", "rank"), ("target_spread", "spread")):
        points, now = _means(run, key), _last(run, key)
        if not points or now is None:
            continue
        best = max(value for _, value in points)
        of_best = now / best if best > 0 else 0.0
        text = f"the {name} of the targets is {format_number(now)}, {percent(of_best)} of its best"
        if of_best < _COLLAPSED:
            remedy = "Try a lower learning rate or a higher optimizer.ema_momentum."
            yield Answer("collapse", "bad", f"It looks so: {text}. {remedy}")
        elif of_best < 2 * _COLLAPSED:
            yield Answer("collapse", "watch", f"Not yet, but {text}.")
        else:
            yield Answer("collapse", "good", f"No: {text}.")


def _only_place(run: Run) -> Iterator[Answer]:
    share = _last(run, "location_share")
    if share is None:
        return
    text = f"the place explains {percent(share)} of the variance of patch features"
    if share > _MUCH_PLACE:
        yield Answer("place", "bad", f"Mostly: {text}. Try stochastic positions, or targets.standardize=position.")
    elif share > _LITTLE_PLACE:
        yield Answer("place", "watch", f"In part: {text}.")
    else:
        yield Answer("place", "good", f"No: {text}; the rest is what is there.")


def _noise(run: Run) -> Iterator[Answer]:
    ratio, kept, blur = (_last(run, key) for key in ("noise_to_signal", "location_kept", "location_blur"))
    if ratio is None or kept is None or blur is None:
        return
    if ratio == 0:
        yield Answer("noise", "open", "There is none in this run: every masked token knows its exact place.")
        return
    text = (
        f"It is {format_number(ratio)} times as long as a position. {percent(kept)} of masked tokens are still "
        f"nearest to their true place; on average a token seems {format_number(blur)} patches away from it."
    )
    if kept > 0.995:
        yield Answer("noise", "watch", f"{text} It hardly hides anything: try a higher positions.noise_to_signal.")
    elif kept < 0.05:
        yield Answer("noise", "watch", f"{text} Little of the place is left: try a lower positions.noise_to_signal.")
    else:
        yield Answer("noise", "good", text)


def _gradients(run: Run) -> Iterator[Answer]:
    values = sorted(value for _, value in run.series.get("grad_norm", Series()).points())
    if len(values) < 10:
        return
    usual = values[len(values) // 2]
    spikes = sum(value > _SPIKE * usual for value in values)
    if spikes >= _SPIKES:
        yield Answer(
            "optimization",
            "watch",
            f"The gradient was more than {_SPIKE:.0f} times its usual length at {spikes} points of the log. Try "
            "optimizer.clip_grad, a longer warm-up or a lower learning rate.",
        )
    else:
        yield Answer("optimization", "good", f"Gradients are usually {format_number(usual)} long, and few stand out.")


def _speed(run: Run) -> Iterator[Answer]:
    wait, speed = _last(run, "data_wait"), _last(run, "images_per_second")
    if wait is None or speed is None:
        return
    text = f"{format_number(speed)} images per second, {percent(wait)} of the time waiting for them"
    if wait > _WAITING:
        yield Answer("speed", "watch", f"{text}. Give more workers, or make images smaller with `flexpredict pack`.")
    else:
        yield Answer("speed", "good", f"{text}: the model sets the pace.")


def _probe(run: Run) -> tuple[str, list[Point]] | None:
    """The better judge of those that the run had, by which its best encoder was kept."""
    for key, name in (("linear_accuracy", "linear accuracy"), ("knn_accuracy", "k-NN accuracy")):
        points = run.series[key].points() if key in run.series else []
        if points:
            scale = 100 if max(value for _, value in points) > 1.5 else 1  # logged in percent
            return name, [(step, value / scale) for step, value in points]
    return None


def _means(run: Run, key: str) -> list[Point]:
    return [bucket.mean for bucket in run.series.get(key, Series()).buckets if bucket.count]


def _last(run: Run, key: str, most: int = 3) -> float | None:
    """The mean of the last few values, so that one odd line does not decide."""
    values = [value for _, value in _means(run, key)[-most:]]
    return sum(values) / len(values) if values else None


def _at(run: Run, key: str, step: float) -> float | None:
    points = _means(run, key)
    return min(points, key=lambda point: abs(point[0] - step))[1] if points else None
