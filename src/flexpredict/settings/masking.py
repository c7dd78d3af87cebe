"""How the patches of an image are divided into context and targets."""

from dataclasses import dataclass, replace
from typing import Literal

from flexpredict.settings.ranges import ranged

Kind = Literal["multiblock", "random", "blocks", "published"]


@dataclass
class Masking:
    """How the patches of an image are divided into context and targets.

    Args:
        kind: multiblock predicts blocks from the rest of one large block (I-JEPA); random predicts every patch
            that is not kept (MAE); blocks predicts what overlapping blocks mask, from all the rest (data2vec);
            published is I-JEPA's own sampler with its faults, for comparison. By default the one of the method.
        targets: target blocks for each context; four as in I-JEPA. Not used by random and blocks.
        target_scale: smallest and largest share of the image in one target block. Not used by random.
        target_aspect: smallest and largest height / width of a target block, in patches. Not used by random.
        context_scale: smallest and largest share of the image in the context block, before its targets are taken out.
            Not used by random and blocks.
        min_context: smallest share of the image that must be left as context; blocks that leave less are drawn again.
            With the default blocks, 99 images in 100 keep more than a quarter anyway, but one unlucky image cannot
            take the context away from the whole batch. multiblock only.
        mask_ratio: share of the patches that are targets, for random (default: MAE's 0.75) and blocks (default:
            data2vec's 0.6).
        keep_targets: share of the patches of each target that are predicted, drawn at random. The others stay hidden
            and cost nothing. Not for data2vec, whose encoder sees every position.
        contexts_per_image: contexts drawn from each image: more predictions for one pass of the target encoder.
        cell: side in patches of the squares that masks are made of. With 2, four patches are hidden or seen together,
            as with targets of half the resolution.
    """

    kind: Kind | None = None
    targets: int = ranged(4, least=1, most=100)
    target_scale: tuple[float, float] = ranged((0.15, 0.2), above=0, most=1, span=True)
    target_aspect: tuple[float, float] = ranged((0.75, 1.5), above=0, span=True)
    context_scale: tuple[float, float] = ranged((0.85, 1.0), above=0, most=1, span=True)
    min_context: float = ranged(0.25, least=0, below=1)
    mask_ratio: float | None = ranged(None, least=0, below=1)
    keep_targets: float = ranged(1.0, above=0, most=1)
    contexts_per_image: int = ranged(1, least=1, most=100)
    cell: int = ranged(1, least=1)

    def settled(self, kind: Kind = "multiblock") -> "Masking":
        """These settings with kind and mask_ratio filled in. kind: the default of the method."""
        kind = self.kind or kind
        ratio = (0.6 if kind == "blocks" else 0.75) if self.mask_ratio is None else self.mask_ratio
        return replace(self, kind=kind, mask_ratio=ratio)

    def masked_patches(self, patches: int) -> int:
        """The number of targets among this many patches, by mask_ratio."""
        assert self.mask_ratio is not None
        return patches - round(patches * (1 - self.mask_ratio))
