"""Common questions about a run, answered from its logged numbers; each answer stands beside the relevant curves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from flexpredict.reports.numbers import format_number, percent
from flexpredict.reports.sections import SECTIONS
from flexpredict.runs.metrics import PROBES
from flexpredict.runs.run_record import Run
from flexpredict.runs.series import Point, Series, is_finite

Verdict = Literal["good", "watch", "bad", "open"]

_RISE = 1.05  # a loss below this multiple of its lowest value has not risen
_NEAR = 0.9  # of the rank at the lowest loss: above this, it is as rich as before
_COLLAPSED = 0.25  # of the best: the training loop warns at the same value
_FEW_DIRECTIONS = 4.0  # a rank below this is a collapse, even if it was never higher
_LITTLE_PLACE, _MUCH_PLACE = 0.3, 0.6  # location shares
_WAITING = 0.1  # of the time
_SPIKE = 10.0  # times the usual gradient norm
_SPIKES = 3
_TITLES = {section.key: section.title for section in SECTIONS}


@dataclass(frozen=True)
class Answer:
    """An answer to a question.

    Args:
        section: key of the section with the relevant curves.
        verdict: how good the answer is.
        short: the answer in a word or two.
        text: the reason, and what to do.
        question: empty if it is the title of the section.
    """

    section: str
    verdict: Verdict
    short: str
    text: str
    question: str = ""


@dataclass(frozen=True)
class Question:
    """A question with the answers of all runs. Runs are given by number, grouped by answer."""

    text: str
    section: str
    answers: tuple[tuple[Answer, tuple[int, ...]], ...]

    @property
    def is_title(self) -> bool:
        return self.text == _TITLES[self.section]

    def in_short(self) -> dict[tuple[Verdict, str], list[int]]:
        """Runs by verdict and short answer."""
        found: dict[tuple[Verdict, str], list[int]] = {}
        for answer, runs in self.answers:
            found.setdefault((answer.verdict, answer.short), []).extend(runs)
        return found


def questions(runs: Sequence[Run]) -> list[Question]:
    """The questions about these runs, in the order of the sections."""
    found: dict[tuple[str, str], dict[Answer, list[int]]] = {}
    for number, run in enumerate(runs):
        for answer in answers(run):
            key = answer.section, answer.question or _TITLES[answer.section]
            found.setdefault(key, {}).setdefault(answer, []).append(number)
    places = list(_TITLES)
    return [
        Question(text, section, tuple((answer, tuple(numbers)) for answer, numbers in told.items()))
        for (section, text), told in sorted(found.items(), key=lambda item: places.index(item[0][0]))
    ]


def answers(run: Run) -> list[Answer]:
    """All answers that the log of a run allows."""
    found = (_learning, _rising_loss, _which_encoder, _collapsing, _only_place, _noise, _gradients, _speed)
    return [answer for question in found for answer in question(run)]


def _learning(run: Run) -> Iterator[Answer]:
    probed = _probe(run)
    loss, ended = _means(run, "loss"), run.series.get("loss", Series()).last
    if run.broke_down or (ended is not None and not is_finite(ended)):
        remedy = "Try a lower learning rate, a longer warm-up, optimizer.clip_grad 1.0 or precision 32-true."
        yield Answer("learning", "bad", "It broke down", f"The loss is no longer a finite number. {remedy}")
    elif probed is not None:
        name, points = probed
        (began, first), (_, last), best = points[0], points[-1], max(points, key=lambda point: point[1])
        text = f"Its {name} went from {percent(first)}{' before training' * (not began)} to {percent(last)}"
        if len(points) < 2:
            yield Answer("learning", "open", "Too early to tell", f"Its {name} is {percent(last)} so far.")
        elif last < best[1] - 0.02 and best[0] > began:
            since = f"after a best of {percent(best[1])} at step {best[0]:,.0f}"
            yield Answer("learning", "watch", "No longer", f"{text}, {since}: it loses what it had learned.")
        elif last > first + 0.02:
            yield Answer("learning", "good", "Yes", f"{text}.")
        else:
            yield Answer("learning", "bad", "Hardly", f"{text}.")
    elif loss:
        (_, first), (_, last) = loss[0], loss[-1]
        yield Answer(
            "learning",
            "open",
            "Not known",
            f"The loss went from {format_number(first)} to {format_number(last)}, which alone does not "
            "answer this. Train with `probe_data`, any labeled images, to find out.",
        )


def _rising_loss(run: Run) -> Iterator[Answer]:
    loss = _averaged(_means(run, "loss"))
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
        text = f"{rose}. Targets change during training, so this may be fine."
        yield Answer("learning", "open", "Not known", text, question)
    elif now >= max(_NEAR * before, _FEW_DIRECTIONS):
        richer = now > _RISE * before
        meaning = "they became richer and harder to predict" if richer else "they are as rich as before"
        yield Answer(
            "learning",
            "good",
            "Harder targets" if richer else "Other targets",
            f"{rose}, while the rank of the targets went from {format_number(before)} to {format_number(now)}: "
            f"{meaning}. The target encoder moves with the encoder, so losses of different steps do not compare.",
            question,
        )
    else:
        yield Answer(
            "learning",
            "bad",
            "It gets worse",
            f"{rose}, while the rank of the targets went from {format_number(before)} to {format_number(now)}: they "
            "did not become richer. Try a lower learning rate or a longer warm-up.",
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
            text = (
                f"It was saved at step {best[0]:,.0f} with a {name} of {percent(best[1])}; the last one, "
                f"encoder.safetensors, has {percent(last[1])}."
            )
            yield Answer("learning", "watch", "encoder_best.safetensors", text, question)
            return
    role = "The encoder" if run.config.get("method") == "mae" else "The target encoder, a moving average,"
    yield Answer("learning", "good", "encoder.safetensors", f"{role} of the last checkpoint.", question)


def _collapsing(run: Run) -> Iterator[Answer]:
    told, worst, flat = [], 1.0, False
    for key, name in (("target_rank", "rank"), ("target_spread", "spread")):
        points, now = _means(run, key), _last(run, key)
        if points and now is not None:
            best = max(value for _, value in points)
            of_best = now / best if best > 0 else 0.0
            worst, flat = min(worst, of_best), flat or (name == "rank" and now < _FEW_DIRECTIONS)
            told.append(f"{name} is {format_number(now)}, {percent(of_best)} of its best")
    if not told:
        return
    text = f"The {'; the '.join(told)}."
    if worst < _COLLAPSED or flat:
        healthy = " Healthy features use dozens of directions." * flat
        remedy = "Try a lower learning rate, a longer warm-up or a higher optimizer.ema_momentum."
        yield Answer("collapse", "bad", "Probably", f"{text}{healthy} {remedy}")
    elif worst < 2 * _COLLAPSED:
        yield Answer("collapse", "watch", "Not yet", text)
    else:
        yield Answer("collapse", "good", "No", text)


def _only_place(run: Run) -> Iterator[Answer]:
    share = _last(run, "location_share")
    if share is None:
        return
    text = f"The position of a patch explains {percent(share)} of the variance of its features"
    if share > _MUCH_PLACE:
        remedy = "Try stochastic positions, or a higher positions.noise_to_signal."
        yield Answer("place", "bad", "Mostly", f"{text}. {remedy}")
    elif share > _LITTLE_PLACE:
        yield Answer("place", "watch", "In part", f"{text}.")
    else:
        yield Answer("place", "good", "No", f"{text}.")


def _noise(run: Run) -> Iterator[Answer]:
    ratio, kept, blur = (_last(run, key) for key in ("noise_to_signal", "location_kept", "location_blur"))
    if ratio is None or kept is None or blur is None:
        return
    if ratio == 0:
        yield Answer("noise", "open", "There is none", "Every masked token knows its exact position.")
        return
    text = (
        f"It is {format_number(ratio)} times as long as a position: {percent(kept)} of masked tokens are still "
        "nearest to their true position"
    )
    if kept > 0.995:
        # Noise too weak to move tokens can still lower the location share (studies/noise-cifar10).
        effect = "The location share shows whether features depend less on position."
        yield Answer("noise", "open", "It moves no token", f"{text}. {effect}")
    elif kept < 0.05:
        remedy = "Little of the position is left: try a lower positions.noise_to_signal."
        yield Answer("noise", "watch", "It hides too much", f"{text}. {remedy}")
    else:
        far = f"and on average a token seems {format_number(blur)} patches away from it"
        yield Answer("noise", "good", "It blurs positions", f"{text}, {far}.")


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
            "It jumps",
            f"The gradient was more than {_SPIKE:.0f} times its usual length at {spikes} points of the log. Try "
            "optimizer.clip_grad, a longer warm-up or a lower learning rate.",
        )
    else:
        text = f"The gradient is usually {format_number(usual)} long, and hardly ever much longer."
        yield Answer("optimization", "good", "Yes", text)


def _speed(run: Run) -> Iterator[Answer]:
    wait, speed = _last(run, "data_wait"), _last(run, "images_per_second")
    if wait is None or speed is None:
        return
    text = f"{format_number(speed)} images per second, {percent(wait)} of the time waiting for them"
    if wait > _WAITING:
        remedy = "Use more workers, or make images smaller with `flexpredict pack`."
        yield Answer("speed", "watch", "It waits for images", f"{text}. {remedy}")
    else:
        yield Answer("speed", "good", "Yes", f"{text}: the model sets the pace.")


def _probe(run: Run) -> tuple[str, list[Point]] | None:
    """The better of the run's two probes, by which its best encoder was kept."""
    for key, judge in PROBES.items():
        points = run.series[key].points() if key in run.series else []
        if points:
            scale = 100 if max(value for _, value in points) > 1.5 else 1  # logged in percent
            return f"{judge} accuracy", [(step, value / scale) for step, value in points]
    return None


def _means(run: Run, key: str) -> list[Point]:
    return [bucket.mean for bucket in run.series.get(key, Series()).buckets if bucket.count]


def _averaged(points: list[Point]) -> list[Point]:
    """A moving average over a twentieth of the points, so that one low value in a noisy log is no turning point."""
    half = len(points) // 40
    windows = (points[max(0, i - half) : i + half + 1] for i in range(len(points)))
    return [
        (step, sum(value for _, value in window) / len(window))
        for (step, _), window in zip(points, windows, strict=True)
    ]


def _last(run: Run, key: str, most: int = 3) -> float | None:
    """The mean of the last few values, so that one outlier does not decide."""
    values = [value for _, value in _means(run, key)[-most:]]
    return sum(values) / len(values) if values else None


def _at(run: Run, key: str, step: float) -> float | None:
    points = _means(run, key)
    return min(points, key=lambda point: abs(point[0] - step))[1] if points else None
