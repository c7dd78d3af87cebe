"""The curves of the page: what each one means, and which ones together answer a question."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How one logged quantity is drawn and written.

    Args:
        key: its name in metrics.jsonl.
        share: whether it is between 0 and 1 and shown in percent.
        noisy: whether smoothing makes sense. A schedule is exact: smoothing would only round its corners.
        digits: significant digits of its last value.
    """

    key: str
    title: str
    meaning: str = ""
    share: bool = False
    noisy: bool = True
    digits: int = 3

    @property
    def unit(self) -> str:
        return "%" if self.share else ""

    def factor(self, values: Iterable[float]) -> float:
        """Factor from logged to shown values; a share well above 1 was logged in percent already."""
        return 100 if self.share and max(values, default=0) < 1.5 else 1


@dataclass(frozen=True)
class Section:
    """Curves that answer one question, and how to read them."""

    key: str
    title: str
    reading: str
    bad_sign: str
    metrics: tuple[Metric, ...]


SECTIONS = (
    Section(
        "learning",
        "Is it learning?",
        "The loss should fall fast, then slowly, but it is a poor judge: what is predicted changes while it is "
        "learned. Accuracy on labeled images, with `probe_data`, is the better one and should rise to the end.",
        "accuracy that stays flat or falls, or a loss that jumps and does not come back.",
        (
            Metric("loss", "Loss", "Distance between prediction and target."),
            Metric(
                "knn_accuracy", "k-NN accuracy", "Labels guessed from nearest neighbors.", share=True, noisy=False
            ),
            Metric(
                "linear_accuracy", "Linear accuracy", "Labels read off by a linear probe.", share=True, noisy=False
            ),
        ),
    ),
    Section(
        "collapse",
        "Is it collapsing?",
        "A collapsed encoder gives everything the same features, so the loss is small and the model useless; "
        "both curves should settle well above zero.",
        "a spread or a rank that sinks toward zero, above all while the loss looks good.",
        (
            Metric("target_spread", "Target spread", "How much target features differ from one another."),
            Metric("target_rank", "Target rank", "RankMe: how many directions the target features use."),
        ),
    ),
    Section(
        "place",
        "Does it learn only positions?",
        "Location share is the part of the variance of patch features that the position of the patch explains: at 0% "
        "features tell what is there, at 100% they tell where it is and nothing else. It should stay low.",
        "a share that climbs past 60%: try stochastic positions, or a higher noise-to-signal ratio.",
        (Metric("location_share", "Location share", "Variance of features that the position explains.", share=True),),
    ),
    Section(
        "noise",
        "What does the noise do?",
        "Masked tokens are given noisy positions. The same matrix A scales the noise and the context, so that the "
        "model cannot drop one and keep the other. The curves should level off.",
        "‖A‖ shrinking to nothing, which switches the noise off, or hardly any token keeping its position, "
        "which leaves nothing to predict from.",
        (
            Metric("A_norm", "‖A‖", "Size of the matrix shared by context and noise."),
            Metric("mask_token_norm", "‖m̃‖", "Size of the learned mask token."),
            Metric("noise_std", "Noise level", "Standard deviation of n.", noisy=False),
            Metric("noise_to_signal", "Noise to signal", "Length of the noise over that of the position."),
            Metric("location_blur", "Location blur", "How far the noise moves a masked token, in patches."),
            Metric("location_kept", "Location kept", "Masked tokens nearest to their true position.", share=True),
        ),
    ),
    Section(
        "optimization",
        "Is the optimization sound?",
        "Learning rate, weight decay and momentum follow their schedules; "
        "the gradient norm should keep its order of magnitude.",
        "a gradient norm that climbs, or spikes again and again: try a longer warm-up or a smaller learning rate.",
        (
            Metric("lr", "Learning rate", "How far each step goes.", noisy=False),
            Metric("weight_decay", "Weight decay", "How strongly weights are pulled to zero.", noisy=False),
            Metric("ema_momentum", "EMA momentum", "How slowly the target encoder follows.", noisy=False, digits=5),
            Metric("grad_norm", "Gradient norm", "Length of the gradient over all weights, before clipping."),
        ),
    ),
    Section(
        "speed",
        "Is it fast enough?",
        "Images per second should be level, and next to no time should go into waiting for data.",
        "a wait of more than a few percent: images are decoded too slowly; add workers, or store smaller images.",
        (
            Metric("images_per_second", "Images per second", "All devices together."),
            Metric("data_wait", "Data wait", "Part of the time spent waiting for images.", share=True),
            Metric("skipped", "Images skipped", "Files that could not be read.", noisy=False),
        ),
    ),
)
METRICS = {metric.key: metric for section in SECTIONS for metric in section.metrics}


def with_others(keys: Iterable[str]) -> tuple[Section, ...]:
    """All sections, and one more for other logged values."""
    others = tuple(Metric(key, key) for key in keys if key not in METRICS)
    return (*SECTIONS, Section("other", "Other", "Other logged values.", "", others))
