"""All commands: what each is for, examples, and the headings of its options."""

from flexpredict.commands.command import Command

_ENCODER = {"encoder": "which heads grid partial"}
_FEATURES = {"features": "layers pooling image_size batch_size precision"}
_DENSE_FEATURES = {"features": "layers image_size batch_size precision"}
_DENSE_RESULTS = {"hardware": "accelerator workers", "results": "out table pictures"}
_MACHINE = {"hardware": "accelerator devices workers"}
_RESULTS = {"results": "out table"}
_PROBE = {"labels": "labels subsets label_list neighbors l2 seed"} | _FEATURES | _ENCODER | _MACHINE | _RESULTS
_RECIPE = {
    "length": "epochs minutes batch_size",
    "model and method": "model image_size patch_size method augmentation init_from seed",
}
_DETAILS = {
    "details": "class_token model_options embedding_scale encoder_positions scale normalize_pixels epoch_size "
    "accumulate max_skipped on_nan",
    "hardware": "accelerator devices num_nodes strategy precision checkpoint_activations compile workers",
    "records": "log_every checkpoint_every keep_last keep_every keep_best probe_every probe_data loggers",
}
_NOT_PLANNED = {"only for pretrain": "minutes"}

# What is kept, and how to continue.
_FEATURES_KEPT = "Extracted features are kept: run the same command again to continue."
_NOTHING_KEPT = "There is no result yet: run the same command again."

_ALL = (
    Command(
        "inspect",
        "see what is in a set of images",
        ("FOLDER", "'shards-{000..127}.tar' --sample 10000"),
        groups={"training": "image_size patch_size augmentation seed"},
    ),
    Command(
        "pack",
        "make images quicker to read, once",
        ("FOLDER packed --size 256", "packed --verify"),
        unnamed="data out",
    ),
    Command(
        "pretrain",
        "pre-train an encoder",
        (
            "FOLDER --out runs/mine",
            "imagenet/train --config vit_b16",
            "FOLDER --minutes 30 --positions.noise_to_signal 1",
            "--out runs/mine --resume",
        ),
        unnamed="data",
        groups={"run": "out config resume overwrite dry_run"} | _RECIPE | _DETAILS,
        folded=tuple(_DETAILS),
    ),
    Command(
        "plan",
        "what a run costs: memory, time",
        (
            "50000 --model vit_small_patch16_224 --epochs 100",
            "1281167 --config vit_b16 --devices 8",
            "FOLDER --on a100-80gb h100 --memory 24",
        ),
        unnamed="data",
        groups={"what it runs on": "on utilization memory measure config"}
        | _RECIPE
        | {"length": "epochs batch_size"}
        | _DETAILS
        | _NOT_PLANNED,
        folded=(*_DETAILS, *_NOT_PLANNED),
    ),
    Command(
        "report",
        "write an HTML page about runs",
        ("runs/mine", "runs/sincos runs/stop --out compared.html", "dinov2.pth --images FOLDER"),
    ),
    Command("serve", "browse all runs of a folder", ("runs", "runs --port 9000"), unnamed="folder"),
    Command(
        "probe",
        "linear probe and k-NN",
        ("runs/mine --train DATA --test DATA", "timm:vit_small_patch16_224 --train DATA --test DATA"),
        groups=_PROBE,
        interrupted=_FEATURES_KEPT,
    ),
    Command(
        "finetune",
        "fine-tune on labels",
        (
            "runs/mine --train DATA --test DATA",
            "runs/mine --train DATA --test DATA --fraction 0.01",
            "--out runs/finetune --resume",
        ),
        unnamed="encoder train test",
        groups={
            "run": "out resume overwrite seed log_every checkpoint_every table",
            "images": "fraction image_list held_out image_size augmentation mixup",
            "training": "epochs batch_size lr start_lr final_lr warmup_epochs layer_decay weight_decay betas "
            "clip_grad drop_path label_smoothing pooling",
            **_ENCODER,
            "hardware": "accelerator devices num_nodes strategy precision workers",
        },
        interrupted="After a checkpoint, continue with --resume and its --out; before, run the same command again.",
    ),
    Command(
        "transfer",
        "the probe over many data sets",
        ("runs/mine --datasets A B C", "runs/mine --datasets cifar=hf://cifar100 places=places205"),
        groups=_PROBE,
        interrupted=_FEATURES_KEPT,
    ),
    Command(
        "evaluate clevr",
        "count objects, estimate distance",
        ("runs/mine --data CLEVR_v1.0", "runs/mine --data scenes:3000,size=64"),
        groups=_PROBE,
        interrupted=_FEATURES_KEPT,
    ),
    Command(
        "evaluate davis",
        "follow objects through videos",
        ("runs/mine --data DAVIS", "--data DAVIS --score_only masks"),
        unnamed="encoder",
        groups={"videos": "split year height overlays"} | _ENCODER | _RESULTS,
        interrupted="Finished sequences are kept: run the same command again to continue.",
    ),
    Command(
        "evaluate location",
        "how much features depend on position",
        ("runs/mine --data DATA", "runs/mine --data scenes:400,size=64"),
        groups=_FEATURES | _ENCODER | _MACHINE | _RESULTS,
        interrupted=_FEATURES_KEPT,
    ),
    Command(
        "evaluate segmentation",
        "the class of every pixel",
        (
            "RUN --train VOC2012 --test VOC2012",
            "RUN --train A,masks=B --test C,masks=D",
            "RUN --train scenes:1000 --test scenes:200",
        ),
        groups={"masks": "classes void", "head": "patches neighbors l2 seed"}
        | _DENSE_FEATURES
        | _ENCODER
        | _DENSE_RESULTS,
        interrupted=_NOTHING_KEPT,
    ),
    Command(
        "evaluate depth",
        "the depth of every pixel",
        ("RUN --train A,depth=B --test C,depth=D", "RUN --train scenes:1000 --test scenes:200"),
        groups={"depth maps": "scale max_depth"} | _DENSE_FEATURES | _ENCODER | _DENSE_RESULTS,
        interrupted=_NOTHING_KEPT,
    ),
    Command(
        "embed",
        "features of images in a file",
        ("runs/mine --data FOLDER --out features.parquet", "runs/mine --data FOLDER --out features.npy --patches"),
        groups=_FEATURES | _ENCODER | _MACHINE,
        interrupted="Finished parts are kept: run the same command again to continue.",
    ),
    Command(
        "similar",
        "images most like a given one",
        ("runs/mine --data FOLDER --query cat.jpg", "runs/mine --data FOLDER --query 17 18 --top 4"),
        groups=_FEATURES | _ENCODER | _MACHINE,
        interrupted=_FEATURES_KEPT,
    ),
    Command(
        "export",
        "for timm, transformers, ONNX",
        ("runs/mine --format timm --out exported/mine", "runs/mine --format onnx --out mine.onnx --image_size 224"),
        groups=_ENCODER,
    ),
    Command(
        "ablate",
        "the paper's tables and figures",
        ("table6 --data scenes --seeds 3", "paper --data FOLDER --test LABELED --dry_run"),
        groups={
            "study": "data seeds arms levels noise where l1_weight",
            "measures": "test holdout labels subsets location_images transfer clevr davis",
            "runs": "out chapter config jobs nice dry_run",
            **_RECIPE,
            **_DETAILS,
        },
        folded=(*_RECIPE, *_DETAILS),
    ),
    Command(
        "analyze",
        "look into a run",
        (
            "positions runs/stop",
            "predictions runs/sincos runs/stop --index 3",
            "norms runs/*",
            "blur runs/stop",
            "proposition1",
        ),
        unnamed="run",
        groups={
            "of positions and blur": "noise_std seed",
            "of positions": "queries draws",
            "of predictions": "image data index patch mask_seed temperature",
        },
    ),
    Command("demo", "see it work in six minutes", ("", "--steps 200 --out quick")),
)
COMMANDS = {command.name: command for command in _ALL}
