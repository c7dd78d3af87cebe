"""A new model sees its images with unit contrast, whatever theirs is."""

import torch

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.pixels import embedding_for_our_pixels
from flexpredict.data.sources.image_source import ImageSource, evenly_spaced
from flexpredict.data.sources.streams import ImageStream, first_images, is_stream
from flexpredict.methods.method import Method
from flexpredict.settings.augmentation import PRESETS
from flexpredict.sizes import Size

_SAMPLE = 256  # images
_LEAST_CONTRAST = 0.02  # standard deviation of a channel, where 1 is white: images that are nearly of one color


@torch.no_grad()
def fit_to_contrast(model: Method, source: ImageSource | ImageStream, image_size: Size) -> None:
    """Fit the patch embedding of a new model to these images, as if their own statistics had normalized them.

    Pixels are normalized by ImageNet's statistics. Paler images would begin as tokens whose content is small beside
    their position, and a short run does not make up for that.
    """
    images = first_images(source, _SAMPLE) if is_stream(source) else source
    rows = torch.tensor(evenly_spaced(len(images), _SAMPLE), dtype=torch.int64)
    sample, unreadable = images.read(rows, draw_crops(PRESETS["none"], rows), image_size)
    readable = [row for row in range(len(rows)) if row not in unreadable]
    if not readable:
        return
    pixels = sample[readable].float().movedim(1, 0).flatten(1) / 255  # 3 (B·H·W)
    mean, std = pixels.mean(dim=1), pixels.std(dim=1).clamp_min(_LEAST_CONTRAST)
    for encoder in dict.fromkeys((model.context_encoder, model.saved_encoder[0])):
        embedding = encoder.vit.patch_embed.proj
        fitted = embedding_for_our_pixels(embedding.weight, embedding.bias, tuple(mean.tolist()), tuple(std.tolist()))
        for parameter, value in zip((embedding.weight, embedding.bias), fitted, strict=True):
            parameter.copy_(value)
