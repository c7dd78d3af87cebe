"""Two ranks on this machine, as torchrun starts them, but forked from a process that has imported torch."""

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch

from flexpredict.cli import main

# The options of `pretrain` that say what tiny.RECIPE says.
OPTIONS = {
    "scale": "published",
    "model": "vit_tiny_patch16_224",
    "model_options": '{"embed_dim": 24, "depth": 2, "num_heads": 2}',
    "image_size": "32",
    "patch_size": "4",
    "predictor": '{"dim": 16, "depth": 2, "heads": 2}',
    "batch_size": "8",
    "epochs": "3",
    "checkpoint_every": "3",
    "accelerator": "cpu",
    "precision": "32-true",
}
_SECONDS = 300


def two_ranks(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of flexpredict."""
    return call_on_two_ranks(_command, *arguments)


def call_on_two_ranks(act: Callable[..., None], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Call a function of a test module in two processes that believe torchrun started them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "test"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder)
        processes = []
        for rank in range(2):
            variables = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
            given = (os.environ | variables, said / str(rank), act, arguments)
            processes.append(warm_processes().Process(target=_rank, args=given))
        for process in processes:
            process.start()
        until = time.monotonic() + _SECONDS
        for process in processes:
            process.join(max(until - time.monotonic(), 0))
            process.kill()
            process.join()
        code = next((process.exitcode for process in processes if process.exitcode), 0)
        out, errors = ("".join((said / f"{rank}.{name}").read_text() for rank in range(2)) for name in ("out", "err"))
    return subprocess.CompletedProcess(arguments, code, out, errors)


def warm_processes() -> ForkServerContext:
    """Processes that are forked from one which has imported everything slow."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["flexpredict.pretraining", "flexpredict.evaluation.probe", "torch.utils.tensorboard"]
    )
    return context


def _rank(environment: dict[str, str], said: Path, act: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    for descriptor, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(said.with_suffix(suffix), os.O_WRONLY | os.O_CREAT), descriptor)
    try:
        act(*arguments)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _command(*arguments: str) -> None:
    sys.exit(main(arguments))
