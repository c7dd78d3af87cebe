"""How the words of a command line are taken apart."""

from typing import Any

import pytest

from flexpredict import UserError
from flexpredict.commands.flags import with_flags
from flexpredict.commands.table import COMMANDS


def arguments(line: str) -> dict[str, Any]:
    name, *words = line.split()
    return COMMANDS[name].arguments(words)


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("pretrain", {}),
        ("pretrain photos", {"data": "photos"}),
        ("pretrain photos more", {"data": ["photos", "more"]}),
        ("pretrain --data photos more --out x", {"data": ["photos", "more"], "out": "x"}),
        ("pretrain --image-size 32 --image_size=64", {"image_size": 64}),
        ("pretrain --image_size 256x192", {"image_size": "256x192"}),
        ("pretrain --resume --compile false", {"resume": True, "compile": False}),
        ("pretrain --resume photos", {"resume": True, "data": "photos"}),
        ("pretrain --optimizer.betas 0.9 0.95 photos", {"optimizer": {"betas": (0.9, 0.95)}, "data": "photos"}),
        ("pretrain --optimizer.betas [0.9,0.95]", {"optimizer": {"betas": (0.9, 0.95)}}),
        ('pretrain --optimizer {"lr":1,"muon_lr":3} --optimizer.lr -2', {"optimizer": {"lr": -2.0, "muon_lr": 3.0}}),
        ('pretrain --optimizer.lr -2 --optimizer {"lr":1,"muon_lr":3}', {"optimizer": {"lr": -2.0, "muon_lr": 3.0}}),
        ("pretrain --optimizer={} --epochs null", {"epochs": None}),
        ("pretrain --model_options.depth 4", {"model_options": {"depth": 4}}),
        ("pretrain --augmentation stop", {"augmentation": "stop"}),
        ("pretrain --augmentation.flip 0.5", {"augmentation": {"flip": 0.5}}),
        ("pretrain --loggers wandb mlflow", {"loggers": ["wandb", "mlflow"]}),
        ("pretrain -- --odd-name", {"data": "--odd-name"}),
        ("pretrain 2024", {"data": "2024"}),
        ("probe run --train a b --test c", {"encoder": "run", "train": ["a", "b"], "test": "c"}),
        ("probe run a b --labels 0.1 1", {"encoder": "run", "train": "a", "test": "b", "labels": [0.1, 1.0]}),
        ("probe run a --test c", {"encoder": "run", "train": "a", "test": "c"}),
        ("similar run --data a --query 17", {"encoder": "run", "data": "a", "query": ["17"]}),
        ("pack a b packed --size 64", {"data": ["a", "b"], "out": "packed", "size": 64}),
        ("pack packed --verify", {"data": "packed", "verify": True}),
        ("pack --out packed --verify", {"out": "packed", "verify": True}),
        ("analyze norms a b", {"figure": "norms", "run": ["a", "b"]}),
    ],
)
def test_words_become_values(line: str, given: dict[str, Any]) -> None:
    assert arguments(line) == given


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("probe --trian x", "There is no option '--trian'. Did you mean '--train'?"),
        ("probe run --train a --test b --pooling max", "pooling=max does not work: it takes mean or class."),
        ("probe run", "--train is missing: labeled images to train on."),
        ("probe run a b c", "'c' is one word too many after ENCODER TRAIN TEST."),
        ("demo quick", "'quick' is one word too many."),
        ("pretrain --epochs --resume", "--epochs needs a value: a number."),
        ("pretrain --seed --", "--seed needs a value: a whole number."),
        ("pretrain -x", "There is no option '--x'."),
        ("pretrain --epochs.x 3", "There is no option '--epochs.x'."),
        ("pretrain --compile maybe --seed x", "seed=x does not work"),
        ("pretrain --augmentation stop --augmentation.flip 0", "--augmentation stop sets the whole augmentation"),
        ("pretrain --augmentation.flip 0 --augmentation stop", "--augmentation stop sets the whole augmentation"),
    ],
)
def test_what_is_wrong_is_told(line: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        arguments(line)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("optimizer.lr=-1 is out of range.", "--optimizer.lr -1 is out of range."),
        ("Go on with resume=True.", "Go on with --resume."),
        ("Choose another `out`.", "Choose another --out."),
        ("Use a larger image_size.", "Use a larger --image_size."),
        ("`out` of data/train", "--out of data/train"),
        ("scenes:300,seed=4 and x.pth,seed=2", "scenes:300,seed=4 and x.pth,seed=2"),
        ("Did you mean 'optimizer.lr'?", "Did you mean 'optimizer.lr'?"),
        ("runs/image_size/x.png, image_size.png", "runs/image_size/x.png, image_size.png"),
        ("`flexpredict pack` does out and data", "`flexpredict pack` does out and data"),
    ],
)
def test_messages_name_flags_on_a_command_line(text: str, shown: str) -> None:
    assert with_flags(text, ["optimizer.lr", "resume", "out", "image_size", "data", "seed"]) == shown
