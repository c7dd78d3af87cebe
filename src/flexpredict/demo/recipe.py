"""All constants of the demo: its recipe, arms, and test protocol."""

from dataclasses import asdict, dataclass
from typing import Any

SEEDS = 5  # runs of each arm, at most
MINUTES = 6.0  # the demo runs as many seeds as fit into this time
STEPS = 900  # of each run: about 58,000 scenes

# A small model, trained for two to four minutes on one core.
RECIPE: dict[str, Any] = {
    "model": "vit_tiny_patch16_224",
    "model_options": {"embed_dim": 96, "depth": 4, "num_heads": 3},
    "patch_size": 8,  # 8x8 patches: a grid of 4x4 is quicker and teaches little
    "predictor": {"dim": 48, "depth": 2, "heads": 3},
    "batch_size": 64,  # small batches give more steps in the same time, which counts most in short runs
    "scale": "small",  # Muon, standardized targets and so on: see settings/scale.py
    "log_every": 20,
    "accelerator": "cpu",
    "devices": 1,
}
ARMS: dict[str, dict[str, Any]] = {
    "sin-cos": {"kind": "sincos"},
    "StoP": {"kind": "stochastic"},  # at the noise level of small runs
}


@dataclass(frozen=True)
class Protocol:
    """The scenes of the demo, and how encoders are measured on them.

    Args:
        train: scenes to pre-train on and, with their labels, to fit probes on.
        test: scenes to test on.
        first_test: number of the first test scene; earlier ones were looked at when the recipe was chosen.
        size: height and width in pixels.
        label_subsets: number of subsets of 1 % of the labels; their probes are averaged.
        location_images: scenes to fit on, and as many to measure location share and the effect of shifts.
    """

    train: int = 10_000
    test: int = 2_000
    first_test: int = 10_000
    size: int = 64
    label_subsets: int = 5
    location_images: int = 1_000

    @property
    def train_data(self) -> str:
        return f"scenes:{self.train},size={self.size}"

    @property
    def test_data(self) -> str:
        return f"scenes:{self.test},size={self.size},split=test,first={self.first_test}"

    def describe(self) -> dict[str, Any]:
        return {
            "encoder": "target encoder, frozen; average of the patches of its last layer",
            "probes": "logistic regression; its penalty is chosen on held-out training scenes",
            "k-NN": "20 nearest by cosine similarity",
            "shifts": "down and right, borders reflected; the probe was fitted on as many unshifted scenes",
            "raw pixels and untrained encoder": "first seed; scenes are shrunk four times",
            **asdict(self),
        }


PROTOCOL = Protocol()


def recipe_values(arm: str, steps: int, seed: int, protocol: Protocol = PROTOCOL) -> dict[str, Any]:
    """The recipe of one arm for this number of steps."""
    epochs = steps * RECIPE["batch_size"] / protocol.train
    return {
        **RECIPE,
        "data": protocol.train_data,
        "image_size": protocol.size,
        "epochs": epochs,
        "seed": seed,
        "positions": ARMS[arm],
    }
