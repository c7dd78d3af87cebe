"""Studies of the recipe: one setting at a time, and each setting put back to its published value.

Each study changes the given recipe as its arms say. The first arm is the published value, or the given recipe if
several settings are tried.
"""

import dataclasses
from typing import Any

from flexpredict.errors import UserError
from flexpredict.model.building import ModelFacts, model_facts
from flexpredict.settings.masking import Masking
from flexpredict.settings.recipe import Recipe, parse_image_sizes
from flexpredict.settings.scale import published_lr, with_defaults
from flexpredict.studies.ablations.study import SINCOS, Arm, Asked, Builder, Study

_NOISE = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 4.0)
_EMA = (0.996, 0.95, 0.98, 0.99, 0.998, 0.999)
_LR = (5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3)
_MUON_LR = (0.02, 0.005, 0.01, 0.04)
_GRIDS = (8, 4, 6, 12, 16)  # patches along a side
_AS_GIVEN = Arm("as given", {})


def _varied(section: str, arms: dict[str, dict[str, Any]]) -> tuple[Arm, ...]:
    """Arms that change a section of the recipe."""
    return tuple(Arm(name, {section: changes}) for name, changes in arms.items())


def _targets(asked: Asked) -> Study:
    arms: dict[str, dict[str, Any]] = {
        "layer norm (published)": {},
        "standardized by feature": {"standardize": "feature"},
        "standardized by position": {"standardize": "position"},
        "mean of half the layers": {"layers": max(1, _facts(asked).depth // 2)},
        "tanh": {"norm": "tanh"},
        "no norm": {"norm": "none"},
    }
    published = {"norm": "layer", "standardize": "none", "layers": 1}
    changed = {name: {**published, **changes} for name, changes in arms.items()}
    return Study("targets", "Which features should be predicted?", _varied("targets", changed))


def _noise(asked: Asked) -> Study:
    levels = [level for level in asked.settings.levels or _NOISE if level]
    arms = (
        Arm(f"{level:g}, {series}", asked.noisy(level, hold=hold), None, level, series)
        for series, hold in (("as it starts", False), ("held", True))
        for level in levels
    )
    return Study("noise", "How much noise?", (Arm("sin-cos", SINCOS, None, 0.0), *arms), "curves")


def _ema(asked: Asked) -> Study:
    momenta = asked.settings.levels or _EMA
    ends = {f"{start:g} to 1": (start, 1.0) for start in momenta} | {
        f"{held:g} held": (held, held) for held in momenta
    }
    arms: dict[str, dict[str, Any]] = {
        name: {"ema_momentum": start, "final_ema_momentum": end} for name, (start, end) in ends.items()
    }
    slowest = max(momenta)
    arms[f"{slowest:g} to 1, by steps"] = {**arms[f"{slowest:g} to 1"], "ema_by_steps": True}
    return Study("ema", "How fast should the target encoder follow?", _varied("optimizer", arms))


def _lr(asked: Asked) -> Study:
    """Learning rates of AdamW for all weights, and of Muon with AdamW for the rest."""
    rates = asked.settings.levels
    arms: dict[str, dict[str, Any]] = {f"AdamW {lr:g}": {"kind": "adamw", "lr": lr} for lr in rates or _LR}
    if not rates:
        arms |= {f"Muon {lr:g}": {"kind": "muon", "muon_lr": lr} for lr in _MUON_LR}
    return Study("lr", "Which learning rate?", _varied("optimizer", arms))


def _optimizer(asked: Asked) -> Study:
    arms: dict[str, dict[str, Any]] = {"AdamW": {"kind": "adamw"}}
    arms |= {f"Muon {lr:g}": {"kind": "muon", "muon_lr": lr} for lr in _MUON_LR}
    arms |= {f"beta2 {beta:g}": {"betas": (0.9, beta)} for beta in (0.95, 0.999)}
    arms |= {
        f"weight decay {start:g} to {end:g}": {"weight_decay": start, "final_weight_decay": end}
        for start, end in ((0.0, 0.0), (0.05, 0.05), (0.04, 0.1), (0.04, 0.4))
    }
    arms |= {"no clipping": {"clip_grad": None}, "gradient clipped at 1": {"clip_grad": 1.0}}
    return Study("optimizer", "Which optimizer?", (_AS_GIVEN, *_varied("optimizer", arms)))


def _masks(asked: Asked) -> Study:
    arms: dict[str, dict[str, Any]] = {f"{count} targets": {"targets": count} for count in (1, 2, 4, 6)}
    arms |= {
        "small targets": {"target_scale": (0.05, 0.1)},
        "8 small targets": {"targets": 8, "target_scale": (0.05, 0.1)},
        "targets of 0.15 to 0.2": {"target_scale": (0.15, 0.2)},
        "large targets": {"target_scale": (0.2, 0.3)},
        "square targets": {"target_aspect": (1.0, 1.0)},
        "aspect 0.75 to 1.5": {"target_aspect": (0.75, 1.5)},
        "aspect 0.33 to 3": {"target_aspect": (0.33, 3.0)},
    }
    arms |= {
        f"{share} of each target": {"keep_targets": kept} for share, kept in (("half", 0.5), ("a quarter", 0.25))
    }
    arms |= {f"{count} context{'s' * (count > 1)} an image": {"contexts_per_image": count} for count in (1, 2, 4)}
    return Study("masks", "Which masks?", (_AS_GIVEN, *_varied("masking", arms)))


def _predictor(asked: Asked) -> Study:
    facts = _facts(asked)

    def arm(width: float, depth: float) -> Arm:
        size = {"dim": round(facts.dim * width), "depth": max(1, round(facts.depth * depth))}
        return Arm(f"{size['dim']}x{size['depth']}", {"predictor": {**size, "heads": None}})

    arms = [arm(width, depth) for width in (0.5, 1.0) for depth in (0.5, 1.0, 0.25)]
    different = {one.name: one for one in arms}  # shallow encoders: fractions of the depth round to the same arm
    return Study("predictor", "How large should the predictor be?", tuple(different.values()))


def _augmentation(asked: Asked) -> Study:
    arms = (
        Arm("crop, flip, blur, grayscale (stop)", {"augmentation": "stop"}),
        Arm("crop (ijepa)", {"augmentation": "ijepa"}),
        Arm("crop and flip", {"augmentation": {"flip": 0.5}}),
    )
    return Study("augmentation", "Which augmentation?", arms)


def _grid(asked: Asked) -> Study:
    assert asked.recipe.image_size
    (height, width), *others = parse_image_sizes(asked.recipe.image_size)
    wanted = [*map(int, asked.settings.levels)] or _GRIDS
    sides = [side for side in wanted if not height % side and not width % (height // side)]
    if others or len(sides) < 2:
        raise UserError(
            f"image_size is {asked.recipe.image_size}, which leaves the study grid fewer than two numbers of patches "
            "to compare. Use one size, such as 64, or set `levels` to several numbers per side."
        )
    arms = (Arm(f"{side}x{side * width // height}", {"patch_size": height // side}) for side in sides)
    return Study("grid", "How many patches?", tuple(arms))


def _embedding(asked: Asked) -> Study:
    options: dict[str, dict[str, Any]] = {
        "4 registers": {"reg_tokens": 4},
        "layer norm after the embedding": {"embed_norm_layer": "layernorm"},
        "layer norm before the blocks": {"pre_norm": True},
    }
    scaled = (Arm(f"embeddings times {scale:g}", {"embedding_scale": scale}) for scale in (0.25, 0.5, 2.0, 4.0))
    arms = (_AS_GIVEN, *_varied("model_options", options), *scaled)
    return Study("embedding", "How should patches be embedded?", arms)


def _combined(asked: Asked) -> Study:
    """Each setting put back to its published value, one at a time and all together; unchanged ones drop out."""
    recipe = asked.recipe
    assert recipe.batch_size and recipe.epochs
    published = with_defaults(Recipe(), "published", published_lr(recipe.batch_size))
    optimizer = {**dataclasses.asdict(published.optimizer), "warmup_epochs": recipe.epochs / 20}
    ema = {name: optimizer.pop(name) for name in ("ema_momentum", "final_ema_momentum")}
    rates = {name: optimizer.pop(name) for name in ("lr", "start_lr", "final_lr", "warmup_epochs", "hold_from_epoch")}
    masks = {name: value for name, value in dataclasses.asdict(Masking()).items() if name not in ("kind", "cell")}
    levers: dict[str, dict[str, Any]] = {
        "targets": {"targets": {**dataclasses.asdict(published.targets), "layers": 1}},
        "noise": {"positions": {"kind": "stochastic", "noise_to_signal": 0.2}},
        "EMA": {"optimizer": ema},
        "learning rate": {"optimizer": rates},
        "optimizer": {"optimizer": optimizer},
        "masks": {"masking": masks},
        "augmentation": {"augmentation": "stop"},
    }
    together = {name: value for fields in levers.values() for name, value in fields.items()}
    together["optimizer"] = {**ema, **rates, **optimizer}
    arms = (
        _AS_GIVEN,
        Arm("sin-cos", SINCOS),
        *(Arm(f"published {name}", fields) for name, fields in levers.items()),
        Arm("all published", together),
        Arm("all published, sin-cos", {**together, **SINCOS}),
    )
    return Study("combined", "What is each lever worth with all the others?", arms)


def _facts(asked: Asked) -> ModelFacts:
    assert asked.recipe.model
    return model_facts(asked.recipe.model, asked.recipe.model_options)


SEARCH: dict[str, Builder] = {
    "targets": _targets,
    "noise": _noise,
    "ema": _ema,
    "lr": _lr,
    "optimizer": _optimizer,
    "masks": _masks,
    "predictor": _predictor,
    "augmentation": _augmentation,
    "grid": _grid,
    "embedding": _embedding,
    "combined": _combined,
}
