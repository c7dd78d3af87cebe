"""Turns a recipe, the data and the machine into a plan in which every number is known."""

import dataclasses
import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch

from flexpredict.cores import cores
from flexpredict.data.sources.opening import ImageSource, ImageStream, is_stream
from flexpredict.data.sources.streams import first_images
from flexpredict.errors import UserError
from flexpredict.masking import check_masking
from flexpredict.methods.choosing import build_method, check_grid, settle_method
from flexpredict.methods.method import Method
from flexpredict.model.blocks import recompute_in_backward
from flexpredict.model.building import check_patches, model_facts, scale_embedding
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.settings.optimizer import SettledOptimizer
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.recipe import Recipe, SettledRecipe, parse_image_sizes
from flexpredict.settings.scale import augmentation_of, published_lr, scale_of, with_defaults
from flexpredict.sizes import default_image_size, default_patch_size
from flexpredict.training.precision import default_precision
from flexpredict.training.schedules import cosine, warmup_cosine
from flexpredict.training.sharding import check_engine

# Images a run sees if `epochs` is not given: a few passes over a small folder on a CPU, fifty over ImageNet on a
# GPU; never more than the paper's 600 epochs.
_IMAGES_ON_CPU = 500_000
_IMAGES_ON_GPU = 60_000_000
_MOST_EPOCHS = 600
PROBES_PER_RUN = 10  # if there are labeled images to probe with


@dataclass
class Plan:
    """A recipe with every setting resolved, and what follows from it."""

    recipe: SettledRecipe
    image_sizes: list[tuple[int, int]]
    samples: int  # in an epoch
    images: int | None  # in the data; None if unknown
    steps: int
    warmup_steps: int
    predictor_warmup_steps: int  # in which the encoder does not learn
    hold_step: int  # from which learning rate and weight decay stay constant
    encoder: EncoderSpec

    @property
    def image_size(self) -> tuple[int, int]:
        """The encoder's image size: the first, if there are several."""
        return self.image_sizes[0]

    def build_model(self) -> Method:
        encoder = self.encoder.build(self.recipe.seed)
        scale_embedding(encoder, self.recipe.embedding_scale)
        model = build_method(self.recipe, encoder)
        if self.recipe.checkpoint_activations:
            recompute_in_backward(model.trained_blocks())
        return model

    def rate(self, step: int) -> float:
        """The learning rate as a share of its peak."""
        settings, step = self.recipe.optimizer, min(step, self.hold_step)
        return warmup_cosine(step, self.steps, self.warmup_steps, settings.start_lr, 1.0, settings.final_lr)

    def learning_rate(self, step: int) -> float:
        return self.rate(step) * self.recipe.optimizer.lr

    def encoder_rate(self, step: int) -> float:
        """The learning rate of the encoder as a share of that of the rest."""
        return 0.0 if step < self.predictor_warmup_steps else self.recipe.optimizer.encoder_lr

    def weight_decay(self, step: int) -> float:
        settings, step = self.recipe.optimizer, min(step, self.hold_step)
        return cosine(step, self.steps, settings.weight_decay, settings.final_weight_decay)

    def checkpoint_due(self, step: int) -> bool:
        """Whether this step makes a checkpoint due; without `checkpoint_every`, the clock makes others due."""
        every = self.recipe.checkpoint_every
        return (every is not None and step % every == 0) or step == self.steps or self.keep_due(step)

    def log_due(self, step: int) -> bool:
        return step % self.recipe.log_every == 0 or step == self.steps or self.probe_due(step)

    def keep_due(self, step: int) -> bool:
        return self._epochs_passed(step, self.recipe.keep_every)

    def probe_due(self, step: int) -> bool:
        return self._epochs_passed(step, self.recipe.probe_every) or (
            self.recipe.probe_every is not None and step == self.steps
        )

    def _epochs_passed(self, step: int, every: float | None) -> bool:
        """Whether this step completes a multiple of `every` epochs."""
        if every is None:
            return False
        images = every * self.samples
        batch = self.recipe.batch_size
        return step * batch // images > (step - 1) * batch // images

    def describe(self) -> dict[str, Any]:
        """The resolved recipe as plain values, for config.yaml."""
        described: dict[str, Any] = plain_values(dataclasses.asdict(self.recipe))
        return described


def make_plan(recipe: Recipe, source: ImageSource | ImageStream, device: torch.device, world_size: int) -> Plan:
    """Fill in what the recipe leaves open; refuse what cannot work before anything is written."""
    check_ranges(recipe)
    on_gpu = device.type != "cpu"
    samples = _epoch_size(recipe, source)
    image_sizes = parse_image_sizes(usual_image_size(source) if recipe.image_size is None else recipe.image_size)
    image_size = image_sizes[0]
    model, options = (recipe.model, {}) if recipe.model else _usual_model(device)
    recipe = dataclasses.replace(recipe, model_options={**options, **recipe.model_options})
    _refuse_own_options(recipe.model_options)
    facts = model_facts(model, recipe.model_options)
    patch_size = recipe.patch_size or default_patch_size(image_size, facts.patch_size)
    recipe = _with_defaults(dataclasses.replace(recipe, patch_size=patch_size), samples, on_gpu, world_size)
    recipe = settle_method(recipe, facts)
    check_engine(recipe, facts)
    if recipe.targets.standardize == "position" and len(set(image_sizes)) > 1:
        raise UserError(
            "targets.standardize=position keeps a mean for each position of one grid, but "
            f"image_size={recipe.image_size} has several. Use targets.standardize=feature, or one image_size."
        )
    for height, width in image_sizes:
        check_patches((height, width), patch_size)
        check_masking(recipe.masking, check_grid(recipe, (height // patch_size, width // patch_size)))

    batch_size, epochs = recipe.batch_size or 1, recipe.epochs or 1.0
    parts = world_size * recipe.accumulate
    if parts > samples:
        raise UserError(
            f"{world_size} device(s) times accumulate={recipe.accumulate} need at least {parts} images, and there "
            f"are {samples}. Use fewer."
        )
    if batch_size % parts:
        near = max(1, round(batch_size / parts)) * parts
        raise UserError(
            f"batch_size={batch_size} cannot be split evenly: {world_size} device(s) times "
            f"{recipe.accumulate} accumulated part(s) make {parts}. Use batch_size={near}."
        )
    if batch_size > samples:
        raise UserError(
            f"batch_size={batch_size} is more than the {samples} images of an epoch. Use at most "
            f"{samples // parts * parts}."
        )
    steps = math.ceil(epochs * samples / batch_size)
    warmup, hold = recipe.optimizer.warmup_epochs, recipe.optimizer.hold_from_epoch
    predictor_warmup = recipe.optimizer.predictor_warmup_epochs
    scale = recipe.scale or "published"
    warmup = epochs / 20 if warmup is None else warmup
    if predictor_warmup is None:
        predictor_warmup = epochs / 4 if scale == "continued" else 0.0
    for name, length in (("warmup_epochs", warmup), ("predictor_warmup_epochs", predictor_warmup)):
        if length > epochs:
            raise UserError(
                f"optimizer.{name}={length:g} is longer than the run of {epochs:g} epochs. Shorten it, or train "
                "for longer."
            )
    if hold is not None and hold < warmup:
        raise UserError(
            f"optimizer.hold_from_epoch={hold:g} is within the warm-up of {warmup:g} epochs. Hold later, or shorten "
            "optimizer.warmup_epochs."
        )

    cores_each = max(1, cores() // max(1, world_size))
    settled = SettledRecipe(
        **_open_fields(recipe),
        model=model,
        class_token=recipe.class_token or facts.relative,  # models of BEiT's kind need one
        image_size=",".join(f"{height}x{width}" for height, width in image_sizes),
        patch_size=patch_size,
        augmentation=augmentation_of(recipe, scale),
        scale=scale,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=SettledOptimizer(
            **{**vars(recipe.optimizer), "warmup_epochs": warmup, "predictor_warmup_epochs": predictor_warmup}
        ),
        precision=recipe.precision or default_precision(device.type),
        workers=(min(8, cores_each) if on_gpu else 0) if recipe.workers is None else recipe.workers,
        encoder_positions=recipe.encoder_positions or "sincos",
    )
    return Plan(
        recipe=settled,
        image_sizes=image_sizes,
        samples=samples,
        images=source.length if is_stream(source) else len(source),
        steps=steps,
        warmup_steps=min(round(warmup * samples / batch_size), steps),
        predictor_warmup_steps=min(round(predictor_warmup * samples / batch_size), steps),
        hold_step=steps if hold is None else min(round(hold * samples / batch_size), steps),
        encoder=EncoderSpec.of_config(dataclasses.asdict(settled)),
    )


def _refuse_own_options(options: dict[str, Any]) -> None:
    """Refuse model options that have a setting of their own, or a fixed value."""
    owners = {
        "img_size": "Use image_size.",
        "patch_size": "Use patch_size.",
        "class_token": "Use class_token.",
        "in_chans": "Images have three channels here.",
        "num_classes": "Pre-training has no classes.",
    }
    for name in options:
        if name in owners:
            raise UserError(f"model_options.{name}={options[name]} cannot be set. {owners[name]}")


def _open_fields(recipe: Recipe) -> dict[str, Any]:
    """Values of the fields that have the same type in `SettledRecipe`."""
    narrowed = {*inspect.get_annotations(SettledRecipe), "class_token", "optimizer"}
    return {
        field.name: getattr(recipe, field.name) for field in dataclasses.fields(Recipe) if field.name not in narrowed
    }


def _with_defaults(recipe: Recipe, samples: int, on_gpu: bool, world_size: int) -> Recipe:
    batch_size = recipe.batch_size or _batch_size(samples, on_gpu, world_size, recipe.accumulate)
    epochs = recipe.epochs
    if epochs is None:
        images = _IMAGES_ON_GPU if on_gpu else _IMAGES_ON_CPU
        epochs = float(min(_MOST_EPOCHS, max(1, round(images / samples))))
    probe_every = recipe.probe_every
    if probe_every is None and recipe.probe_data is not None:
        probe_every = epochs / PROBES_PER_RUN
    recipe = dataclasses.replace(recipe, batch_size=batch_size, epochs=epochs, probe_every=probe_every)
    return with_defaults(recipe, scale_of(recipe, epochs * samples), published_lr(batch_size))


def _epoch_size(recipe: Recipe, source: ImageSource | ImageStream) -> int:
    size = recipe.epoch_size
    if size is None:
        size = source.length if is_stream(source) else len(source)
    if size is None:
        raise UserError(
            f"The number of images in {source.name} is unknown until it is read to its end. Set how many make an "
            "epoch, for example epoch_size=100000."
        )
    return size


def usual_image_size(source: ImageSource | ImageStream) -> int:
    """The size at which new weights are trained on these images."""
    sizes = (first_images(source) if is_stream(source) else source).sizes()
    if not sizes:
        raise UserError(f"No image at the beginning of {source.name} could be read. Check that it holds images.")
    return default_image_size(sizes)


def _usual_model(device: torch.device) -> tuple[str, dict[str, Any]]:
    """A timm name, and further arguments of its constructor."""
    if device.type == "cpu":
        # A full ViT-Ti takes twelve times the work per image, which would take days.
        return "vit_tiny_patch16_224", {"embed_dim": 96, "depth": 4, "num_heads": 3}
    if device.type == "cuda" and torch.cuda.get_device_properties(device).total_memory > 30e9:
        return "vit_base_patch16_224", {}
    return "vit_small_patch16_224", {}


def _batch_size(samples: int, on_gpu: bool, world_size: int, accumulate: int) -> int:
    wanted = 128 * world_size if on_gpu else 64
    parts = world_size * accumulate
    return max(1, min(wanted, samples) // parts) * parts


def plain_values(value: Any) -> Any:
    """The value as YAML can hold it: lists in place of tuples."""
    if isinstance(value, dict):
        return {name: plain_values(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(entry) for entry in value]
    return value
