"""All commands: the function of each, examples, and the headings of its options."""

from flexpredict.commands.command import Command

_Groups = dict[str, tuple[str, ...]]
_ENCODER: _Groups = {"encoder": ("which", "heads", "grid", "partial")}
_FEATURES: _Groups = {"features": ("layers", "pooling", "image_size", "batch_size", "precision")}
_DENSE_FEATURES: _Groups = {"features": ("layers", "image_size", "batch_size", "precision")}
_DENSE_RESULTS: _Groups = {"hardware": ("accelerator", "workers"), "results": ("out", "table", "pictures")}
_LABELS: _Groups = {"labels": ("labels", "subsets", "label_list", "neighbors", "l2", "seed")}
_MACHINE: _Groups = {"hardware": ("accelerator", "devices", "workers")}
_RESULTS: _Groups = {"results": ("out", "table")}
_RECIPE: _Groups = {
    "length": ("epochs", "minutes", "batch_size"),
    "model and method": ("model", "image_size", "patch_size", "method", "augmentation", "init_from", "seed"),
}
_DETAILS: _Groups = {
    "details": (
        *("class_token", "model_options", "encoder_positions", "scale", "normalize_pixels"),
        *("epoch_size", "accumulate", "max_skipped", "on_nan"),
    ),
    "hardware": (
        *("accelerator", "devices", "num_nodes", "strategy", "precision"),
        *("checkpoint_activations", "compile", "workers"),
    ),
    "records": (
        *("log_every", "checkpoint_every", "keep_last", "keep_every", "keep_best"),
        *("probe_every", "probe_data", "loggers"),
    ),
}

# What is kept, and how to go on.
_FEATURES_KEPT = "Features that were extracted are kept: run the same command again to go on."
_NOTHING_KEPT = "There is no result yet: run the same command again."

COMMANDS = {
    "inspect": Command(
        "inspect",
        "see what is in a set of images",
        ("flexpredict inspect FOLDER", "flexpredict inspect 'shards-{000..127}.tar' --sample 10000"),
        groups={"training": ("image_size", "patch_size", "augmentation", "seed")},
    ),
    "pack": Command(
        "pack",
        "make images quicker to read, once",
        (
            "flexpredict pack FOLDER packed --size 256",
            "flexpredict pretrain packed",
            "flexpredict pack packed --verify",
        ),
        unnamed=("data", "out"),
    ),
    "pretrain": Command(
        "pretrain",
        "pre-train an encoder",
        (
            "flexpredict pretrain FOLDER --out runs/mine",
            "flexpredict pretrain imagenet/train --config vit_b16",
            "flexpredict pretrain FOLDER --minutes 30 --positions.noise_std 0.5",
            "flexpredict pretrain --out runs/mine --resume",
        ),
        unnamed=("data",),
        groups={
            "run": ("out", "config", "resume", "overwrite", "dry_run"),
            **_RECIPE,
            **_DETAILS,
        },
        folded=tuple(_DETAILS),
    ),
    "plan": Command(
        "plan",
        "what a run costs: memory, time",
        (
            "flexpredict plan 50000 --model vit_small_patch16_224 --epochs 100",
            "flexpredict plan 1281167 --config vit_b16 --devices 8",
            "flexpredict plan FOLDER --on a100-80gb h100 --memory 24",
        ),
        unnamed=("data",),
        groups={
            "what it runs on": ("on", "utilization", "memory", "measure", "config"),
            **_RECIPE,
            **_DETAILS,
        },
        folded=tuple(_DETAILS),
    ),
    "report": Command(
        "report",
        "write the HTML page of runs",
        (
            "flexpredict report runs/mine",
            "flexpredict report runs/sincos runs/stop --out compared.html",
            "flexpredict report dinov2.pth --images FOLDER",
        ),
    ),
    "serve": Command(
        "serve",
        "all runs of a folder in a browser",
        ("flexpredict serve runs", "flexpredict serve runs --port 9000"),
        unnamed=("folder",),
    ),
    "probe": Command(
        "probe",
        "linear probe and k-NN",
        (
            "flexpredict probe runs/mine --train DATA --test DATA",
            "flexpredict probe timm:vit_small_patch16_224 --train DATA --test DATA",
        ),
        groups=_LABELS | _FEATURES | _ENCODER | _MACHINE | _RESULTS,
        interrupted=_FEATURES_KEPT,
    ),
    "finetune": Command(
        "finetune",
        "fine-tune on labels",
        (
            "flexpredict finetune runs/mine --train DATA --test DATA",
            "flexpredict finetune runs/mine --train DATA --test DATA --fraction 0.01",
        ),
        groups={
            "run": ("out", "resume", "overwrite", "seed", "log_every", "checkpoint_every", "table"),
            "images": ("fraction", "image_list", "held_out", "image_size", "augmentation", "mixup"),
            "training": (
                *("epochs", "batch_size", "lr", "start_lr", "final_lr", "warmup_epochs", "layer_decay"),
                *("weight_decay", "betas", "clip_grad", "drop_path", "label_smoothing", "pooling"),
            ),
            **_ENCODER,
            "hardware": ("accelerator", "devices", "num_nodes", "strategy", "precision", "workers"),
        },
        interrupted="Run the same command again, with --resume once the run has a checkpoint.",
    ),
    "transfer": Command(
        "transfer",
        "the probe over many data sets",
        (
            "flexpredict transfer runs/mine --datasets A B C",
            "flexpredict transfer runs/mine --datasets cifar=hf://cifar100 places=places205",
        ),
        groups=_LABELS | _FEATURES | _ENCODER | _MACHINE | _RESULTS,
        interrupted=_FEATURES_KEPT,
    ),
    "evaluate clevr": Command(
        "evaluate_clevr",
        "count objects, tell their distance",
        (
            "flexpredict evaluate clevr runs/mine --data CLEVR_v1.0",
            "flexpredict evaluate clevr runs/mine --data scenes:3000,size=64",
        ),
        groups=_LABELS | _FEATURES | _ENCODER | _MACHINE | _RESULTS,
        interrupted=_FEATURES_KEPT,
    ),
    "evaluate davis": Command(
        "evaluate_davis",
        "follow objects through videos",
        (
            "flexpredict evaluate davis runs/mine --data DAVIS",
            "flexpredict evaluate davis --data DAVIS --score_only masks",
        ),
        unnamed=("encoder",),
        groups={"videos": ("split", "year", "height", "overlays"), **_ENCODER, **_RESULTS},
        interrupted="Finished sequences are kept: run the same command again to go on.",
    ),
    "evaluate location": Command(
        "evaluate_location",
        "what features tell of the place",
        (
            "flexpredict evaluate location runs/mine --data DATA",
            "flexpredict evaluate location runs/mine --data scenes:400,size=64",
        ),
        groups=_FEATURES | _ENCODER | _MACHINE | _RESULTS,
        interrupted=_FEATURES_KEPT,
    ),
    "evaluate segmentation": Command(
        "evaluate_segmentation",
        "the class of every pixel",
        (
            "flexpredict evaluate segmentation RUN --train VOC2012 --test VOC2012",
            "flexpredict evaluate segmentation RUN --train A,masks=B --test C,masks=D",
            "flexpredict evaluate segmentation RUN --train scenes:1000 --test scenes:200",
        ),
        groups={
            "masks": ("classes", "void"),
            "head": ("patches", "neighbors", "l2", "seed"),
            **_DENSE_FEATURES,
            **_ENCODER,
            **_DENSE_RESULTS,
        },
        interrupted=_NOTHING_KEPT,
    ),
    "evaluate depth": Command(
        "evaluate_depth",
        "the depth of every pixel",
        (
            "flexpredict evaluate depth RUN --train A,depth=B --test C,depth=D",
            "flexpredict evaluate depth RUN --train scenes:1000 --test scenes:200",
        ),
        groups={"depth maps": ("scale", "max_depth"), **_DENSE_FEATURES, **_ENCODER, **_DENSE_RESULTS},
        interrupted=_NOTHING_KEPT,
    ),
    "embed": Command(
        "embed",
        "features of images in a file",
        (
            "flexpredict embed runs/mine --data FOLDER --out features.parquet",
            "flexpredict embed runs/mine --data FOLDER --out features.npy --patches",
        ),
        groups=_FEATURES | _ENCODER | _MACHINE,
        interrupted="Finished parts are kept: run the same command again to go on.",
    ),
    "similar": Command(
        "similar",
        "images most like a given one",
        (
            "flexpredict similar runs/mine --data FOLDER --query cat.jpg",
            "flexpredict similar runs/mine --data FOLDER --query 17 18 --top 4",
        ),
        groups=_FEATURES | _ENCODER | _MACHINE,
        interrupted=_FEATURES_KEPT,
    ),
    "export": Command(
        "export",
        "for timm, transformers, ONNX",
        (
            "flexpredict export runs/mine --format timm --out exported/mine",
            "flexpredict export runs/mine --format onnx --out mine.onnx --image_size 224",
        ),
        groups=_ENCODER,
    ),
    "ablate": Command(
        "ablate",
        "the paper's tables and figures",
        (
            "flexpredict ablate table6 --data scenes --seeds 3",
            "flexpredict ablate paper --data FOLDER --test LABELED --dry_run",
        ),
        groups={
            "study": ("data", "seeds", "levels", "noise", "where", "l1_weight"),
            "measures": ("test", "holdout", "labels", "subsets", "location_images"),
            "runs": ("out", "chapter", "config", "jobs", "nice", "dry_run"),
            **_RECIPE,
            **_DETAILS,
        },
        folded=(*_RECIPE, *_DETAILS),
    ),
    "analyze": Command(
        "analyze",
        "look into a run",
        (
            "flexpredict analyze positions runs/stop",
            "flexpredict analyze predictions runs/sincos runs/stop --index 3",
            "flexpredict analyze norms runs/*",
            "flexpredict analyze blur runs/stop",
            "flexpredict analyze proposition1",
        ),
        unnamed=("run",),
        groups={
            "of positions and blur": ("noise_std", "seed"),
            "of positions": ("queries", "draws"),
            "of predictions": ("image", "data", "index", "patch", "mask_seed", "temperature"),
        },
    ),
    "demo": Command(
        "demo",
        "see it work in six minutes",
        ("flexpredict demo", "flexpredict demo --steps 200 --out quick"),
    ),
}
