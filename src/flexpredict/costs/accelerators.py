"""Accelerators by name: speed and memory as their makers state them."""

from dataclasses import dataclass

from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.recipe import Precision


@dataclass(frozen=True)
class Accelerator:
    """Values from the data sheet, for dense matrices."""

    bf16: float  # 10¹² operations a second in bfloat16, summed in float32
    fp32: float  # the same in float32, without rounding to TF32
    memory: float  # gigabytes (10⁹ bytes)
    link: float  # gigabytes a second to the other accelerators of its machine, in each direction

    def peak(self, precision: Precision) -> float:
        """Operations a second."""
        return 1e12 * (self.bf16 if precision == "bf16-mixed" else self.fp32)


ACCELERATORS = {
    "rtx3090": Accelerator(bf16=71, fp32=35.6, memory=24, link=32),
    "rtx4090": Accelerator(bf16=165, fp32=82.6, memory=24, link=32),
    "l4": Accelerator(bf16=121, fp32=30.3, memory=24, link=32),
    "l40s": Accelerator(bf16=362, fp32=91.6, memory=48, link=32),
    "a100-40gb": Accelerator(bf16=312, fp32=19.5, memory=40, link=300),
    "a100-80gb": Accelerator(bf16=312, fp32=19.5, memory=80, link=300),
    "h100": Accelerator(bf16=989, fp32=67, memory=80, link=450),
    "h200": Accelerator(bf16=989, fp32=67, memory=141, link=450),
    "b200": Accelerator(bf16=2250, fp32=75, memory=180, link=900),
    "mi300x": Accelerator(bf16=1307, fp32=163, memory=192, link=448),
}


def accelerator_named(name: str) -> Accelerator:
    known = name.lower()
    if known not in ACCELERATORS:
        raise UserError(
            f"on={name} is not known.{did_you_mean(known, ACCELERATORS)} Choose one of {', '.join(ACCELERATORS)}."
        )
    return ACCELERATORS[known]
