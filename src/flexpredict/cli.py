"""The command line: finds the command and runs it."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from flexpredict import __version__
from flexpredict.cores import prepare_threads
from flexpredict.errors import UserError, did_you_mean

_COMMANDS = {
    "inspect": ("see what is in a set of images", "flexpredict inspect FOLDER"),
    "pack": ("make it quicker to read, once", "flexpredict pack FOLDER packed --size 256"),
    "pretrain": ("pre-train an encoder", "flexpredict pretrain --data FOLDER --out runs/mine"),
    "report": ("write the HTML page of a run", "flexpredict report runs/mine"),
    "probe": ("linear probe and k-NN", "flexpredict probe runs/mine --train DATA --test DATA"),
    "finetune": ("fine-tune on labels", "flexpredict finetune runs/mine --train DATA --test DATA"),
    "transfer": ("the probe over many data sets", "flexpredict transfer runs/mine --datasets A B C"),
    "evaluate": ("CLEVR, DAVIS, location", "flexpredict evaluate davis runs/mine --data DAVIS"),
    "embed": ("features of images in a file", "flexpredict embed runs/mine --data FOLDER --out f.parquet"),
    "similar": ("images most like a given one", "flexpredict similar runs/mine --data FOLDER --query a.jpg"),
    "export": ("for timm, transformers, ONNX", "flexpredict export runs/mine --format timm --out mine"),
    "ablate": ("the paper's tables and figures", "flexpredict ablate table6 --data scenes --seeds 3"),
    "analyze": ("look into a run", "flexpredict analyze positions runs/mine"),
    "demo": ("see it work in six minutes", "flexpredict demo"),
}
_HELP = """\
flexpredict {version}: pre-train vision transformers on unlabelled images, with stochastic positions (StoP).

usage: flexpredict COMMAND [OPTIONS]

commands:
{commands}

Images may be in a folder, in tar shards, in parquet files or on the Hugging Face hub; `scenes` are built in.
Encoders are run folders, checkpoints of I-JEPA, StoP, MAE, DINO and others, timm:NAME or hf:NAME.

`flexpredict COMMAND --help` explains a command and all its options.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 for bad input (said in one paragraph), 130 if interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:<10} {what:<31} {how}" for name, (what, how) in _COMMANDS.items())
        print(_HELP.format(version=__version__, commands=commands), end="")
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    # Before torch is imported: its large blocks then live in huge pages, worth up to a tenth of a step on a CPU.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    prepare_threads()
    name, rest = arguments[0], [_with_underscores(argument) for argument in arguments[1:]]
    try:
        if name not in _COMMANDS:
            near, known = did_you_mean(name, _COMMANDS), ", ".join(_COMMANDS)
            raise UserError(f"There is no command '{name}'.{near} The commands are: {known}.")
        # Each imports what it needs: `flexpredict --help` does not wait for torch.
        code: int = import_module(f"flexpredict.commands.{name}").run(rest)
        return code
    except UserError as error:
        print(f"flexpredict: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("flexpredict: interrupted", file=sys.stderr)
        return 130
    finally:
        _leave_the_other_processes()


def _leave_the_other_processes() -> None:
    """Several ranks: a process that ends while threads of its group still run is aborted, now and then."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _with_underscores(argument: str) -> str:
    """--image-size and --image_size are the same option."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


if __name__ == "__main__":
    sys.exit(main())
