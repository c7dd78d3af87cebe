"""What the page of a run shows: which numbers stand together, what they mean, and how to read them."""

from dataclasses import dataclass

from flexpredict.reports.charts import Metric


@dataclass(frozen=True)
class Section:
    """Charts that answer one question, and a sentence on how to read them."""

    title: str
    reading: str
    bad_sign: str
    metrics: tuple[Metric, ...]


SECTIONS = (
    Section(
        "Is it learning?",
        "The loss should fall fast, then slowly; k-NN accuracy is the better judge, and should rise to the end.",
        "k-NN accuracy that stays flat or falls, or a loss that jumps and does not come back.",
        (
            Metric("loss", "Loss", "Distance between prediction and target."),
            Metric(
                "knn_accuracy", "k-NN accuracy", "Labels guessed from nearest neighbours.", share=True, noisy=False
            ),
        ),
    ),
    Section(
        "Is it collapsing?",
        "A collapsed encoder gives everything the same features, so the loss is small and the model useless; "
        "both curves should settle well above zero.",
        "a spread or a rank that sinks towards zero, above all while the loss looks good.",
        (
            Metric("target_spread", "Target spread", "How much target features differ from one another."),
            Metric("target_rank", "Target rank", "RankMe: how many directions the target features use."),
        ),
    ),
    Section(
        "What, or only where?",
        "Location share is the part of the variance of patch features that the place of the patch explains: at 0% "
        "features tell what is there, at 100% they tell where it is and nothing else; it should stay low.",
        "a share that climbs past 60%: try stochastic positions, or a higher noise-to-signal ratio.",
        (Metric("location_share", "Location share", "Variance of features that the place explains.", share=True),),
    ),
    Section(
        "What the noise does",
        "Masked tokens stand at noisy positions, and the same matrix A scales the noise and the context, "
        "so that the model cannot drop one and keep the other; the curves should level off.",
        "‖A‖ shrinking to nothing, which switches the noise off, or hardly any token keeping its place, "
        "which leaves nothing to predict from.",
        (
            Metric("A_norm", "‖A‖", "Size of the matrix shared by context and noise."),
            Metric("mask_token_norm", "‖m̃‖", "Size of the learned mask token."),
            Metric("noise_to_signal", "Noise to signal", "Length of the noise over that of the position."),
            Metric("location_blur", "Location blur", "How far the noise moves a masked token, in patches."),
            Metric("location_kept", "Location kept", "Masked tokens still nearest to their true place.", share=True),
        ),
    ),
    Section(
        "Optimisation",
        "Learning rate, weight decay and momentum follow their schedules; "
        "the gradient norm should keep its order of magnitude.",
        "a gradient norm that climbs, or spikes again and again: try a longer warm-up or a smaller learning rate.",
        (
            Metric("lr", "Learning rate", "How far each step goes.", noisy=False),
            Metric("weight_decay", "Weight decay", "How strongly weights are pulled to zero.", noisy=False),
            Metric("ema_momentum", "EMA momentum", "How slowly the target encoder follows.", noisy=False, digits=5),
            Metric("grad_norm", "Gradient norm", "Length of the gradient over all weights."),
        ),
    ),
    Section(
        "Speed",
        "Images per second should be level, and next to no time should go into waiting for data.",
        "a wait of more than a few per cent: images are decoded too slowly; add workers, or store smaller images.",
        (
            Metric("images_per_second", "Images per second", "All devices together."),
            Metric("data_wait", "Data wait", "Part of the time spent waiting for images.", share=True),
            Metric("skipped", "Images skipped", "Files that could not be read.", noisy=False),
        ),
    ),
)
KNOWN = {metric.key for section in SECTIONS for metric in section.metrics}
