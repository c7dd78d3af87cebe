"""Pre-training of the arms, each in a process of its own: `flexpredict pretrain`, as anyone would start it."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml

from flexpredict.cores import cores
from flexpredict.errors import UserError
from flexpredict.studies.ablations.runs import ArmRun
from flexpredict.training.plan import Plan, plain_values

_MEASURED_STEPS = 16
_SECONDS_BETWEEN_LOOKS = 0.2
INTERRUPTED = 130


def carry_out(runs: list[ArmRun], out: Path, jobs: int) -> Iterator[tuple[ArmRun, bool]]:
    """Each run as it ends, and whether it ran to its end (it does not when someone stops it).

    Never more than `jobs` at a time, and none is begun after one was stopped or failed.
    """
    waiting = list(runs)
    going: dict[int, tuple[ArmRun, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or going:
            for slot in [slot for slot in range(jobs) if slot not in going and waiting]:
                run = waiting.pop(0)
                going[slot] = run, begin(run, out, slot, jobs)
            for slot, (run, process) in list(going.items()):
                code = process.poll()
                if code is None:
                    continue
                del going[slot]
                if code not in (0, INTERRUPTED):
                    raise UserError(f"The run {run.folder} failed. {_last_words(_log(run, out))}")
                yield run, code == 0
                if code:
                    return
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        for _, process in going.values():
            process.terminate()  # it saves what it has done
        for _, process in going.values():
            process.wait()


def begin(run: ArmRun, out: Path, slot: int, jobs: int) -> subprocess.Popen[bytes]:
    """Begin a run or go on with it. slot: which of those at a time it is, and so which part of the machine it has."""
    resume = ["--resume"] if run.begun else []
    return _pretrain(run, run.folder, _log(run, out), resume, slot, jobs)


def seconds_a_step(run: ArmRun, plan: Plan) -> float | None:
    """Measured on a few steps of the run, in a folder that is thrown away; None if someone stopped it."""
    scratch = Path(tempfile.mkdtemp(prefix="flexpredict-"))
    try:
        short = [
            f"--epochs={_MEASURED_STEPS * plan.recipe.batch_size / plan.samples}",
            "--checkpoint_every=1000000",
            "--log_every=1",
            "--probe_every=null",
        ]
        code = _pretrain(run, scratch / "run", scratch / "log", short, 0, 1).wait()
        if code == INTERRUPTED:
            return None
        if code:
            raise UserError(
                f"A few steps of {run.folder.name} were tried, and failed. {_last_words(scratch / 'log')}"
            )
        lines = (scratch / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rates = [json.loads(line)["images_per_second"] for line in lines[len(lines) // 2 :]]
        return plan.recipe.batch_size / float(statistics.median(rates))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pretrain(
    run: ArmRun, folder: Path, log: Path, options: list[str], slot: int, jobs: int
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    recipe = log.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump(plain_values(run.values), sort_keys=False, allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "flexpredict.cli", "pretrain", f"--config={recipe}", f"--out={folder}", *options]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_share(slot, jobs),
            start_new_session=True,  # Ctrl-C is for us, who then ask each run once to save and leave
        )


def _share(slot: int, jobs: int) -> dict[str, str]:
    """An environment with this run's part of the cores and of the GPUs."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // jobs)))
    count = torch.cuda.device_count()
    if jobs > 1 and count >= jobs and "CUDA_VISIBLE_DEVICES" not in environment:
        each = count // jobs
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(slot * each, (slot + 1) * each)))
    return environment


def _log(run: ArmRun, out: Path) -> Path:
    return out / "logs" / f"{run.folder.name}.log"


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"Its last words: {' '.join(lines[-3:]) or 'none'} (all of them: {log})"
