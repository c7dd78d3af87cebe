"""The command line: finds the command, calls its function, shows the result."""

import os
import re
import sys
from collections.abc import Sequence

from flexpredict import __version__
from flexpredict.commands.command import Command
from flexpredict.commands.said_once import is_said_by_first_rank
from flexpredict.commands.table import COMMANDS
from flexpredict.cores import prepare_threads
from flexpredict.errors import UserError, did_you_mean, printable
from flexpredict.interruption import exit_code, interrupt_on_sigterm

_HELP = """\
flexpredict {version}: pre-train vision transformers on unlabeled images, with
stochastic positions (StoP).

usage: flexpredict COMMAND [OPTIONS]

commands:
{commands}

Images may be in a folder, in tar shards, in parquet files or on the Hugging
Face hub; `scenes` are built in. Encoders are run folders, checkpoints of
I-JEPA, StoP, MAE, DINO and others, timm:NAME or hf:NAME.

`flexpredict COMMAND --help` explains a command, `--help all` all its options.
`flexpredict completion bash|zsh|fish` prints completions for your shell:
eval "$(flexpredict completion bash)" in ~/.bashrc.
"""
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns 0 if it went well, 2 for bad input (explained in a paragraph), 75 if it was preempted and the same command
    continues it, 130 or more if it was interrupted otherwise.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(_list_of_commands(COMMANDS), end="")
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    # Torch reads this when it is imported. Large blocks in huge pages save up to a tenth of a step on a CPU.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    prepare_threads()
    try:
        with interrupt_on_sigterm():
            return _run(words)
    except UserError as error:
        message = printable(" ".join(str(error).split()))
        if not is_said_by_first_rank(message):
            print(f"flexpredict: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        if os.environ.get("RANK", "0") == "0":  # torchrun ends the other ranks as soon as one has failed
            print(". ".join(["flexpredict: interrupted", *filter(None, interruption.args)]), file=sys.stderr)
        return exit_code(interruption)
    finally:
        _leave_process_group()


def _run(words: list[str]) -> int:
    if words[0] == "completion":
        from flexpredict.commands.completion import completion_script

        print(completion_script("".join(words[1:2]), COMMANDS), end="")
        return 0
    spaced = re.sub("[_-]", " ", words[0])  # evaluate_clevr, as in Python, is evaluate clevr
    words = [*(spaced.split() if spaced in COMMANDS else words[:1]), *words[1:]]
    family = {name: command for name, command in COMMANDS.items() if name.split()[0] == words[0] != name}
    if family and words[1:2] in ([], ["-h"], ["--help"]):
        print(_list_of_commands(family), end="")
        return 0
    name = " ".join(words[: 2 if family else 1])
    if name not in COMMANDS:
        known = ", ".join(family or dict.fromkeys(command.split()[0] for command in COMMANDS))
        raise UserError(f"There is no command '{name}'.{did_you_mean(name, COMMANDS, most=1)} There are: {known}.")
    return _run_command(name, COMMANDS[name], words[len(name.split()) :])


def _run_command(name: str, command: Command, words: list[str]) -> int:
    # Imported late: the list of commands does not need them.
    from flexpredict.commands.flags import with_flags
    from flexpredict.showing import show

    asked = next((place for place, word in enumerate(words) if word in ("-h", "--help")), None)
    if asked is not None:
        from flexpredict.commands.help import help_page

        print(help_page(name, command, "".join(words[asked + 1 : asked + 2])), end="")
        return 0
    try:
        result = command.load()(**command.arguments(words))
    except UserError as error:
        raise UserError(with_flags(str(error), command.settings())) from error
    except KeyboardInterrupt as interruption:
        if not command.interrupted:
            raise
        raise type(interruption)(command.interrupted) from interruption
    if result is None or not (getattr(result, "finished", True) or getattr(result, "dry_run", False)):
        return getattr(result, "exit_code", _INTERRUPTED)
    show(result)
    return 0


def _list_of_commands(commands: dict[str, Command]) -> str:
    return _HELP.format(
        version=__version__,
        commands="\n".join(f"  {name:<22} {command.summary}" for name, command in commands.items()),
    )


def _leave_process_group() -> None:
    """A rank that exits while threads of its process group still run is sometimes aborted."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
