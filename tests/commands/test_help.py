"""Help pages: at once, without torch, in 80 columns, in words; every example on them can be typed."""

import shlex
import subprocess
import sys

import pytest

from flexpredict.cli import main
from flexpredict.commands.help import help_page
from flexpredict.commands.table import COMMANDS

HEAVY = ("torch", "timm", "lightning_fabric", "transformers", "datasets", "numpy", "matplotlib", "PIL")


def test_no_help_page_and_no_typing_error_waits_for_torch() -> None:
    code = f"""
import sys
from flexpredict.cli import main
from flexpredict.commands.table import COMMANDS
for name in COMMANDS:
    assert main([*name.split(), "--help"]) == 0
    assert main([*name.split(), "--no_such_option"]) == 2
assert main(["pretrain", "x", "--optimizer.lr", "-1"]) == 2
assert main(["--help"]) == main([]) == 0
heavy = [name for name in {HEAVY} if name in sys.modules]
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_readable(name: str) -> None:
    short, page = help_page(name, COMMANDS[name]), help_page(name, COMMANDS[name], "all")
    assert len(short.splitlines()) <= 125, "what most people need is on the first page"
    assert max(map(len, short.splitlines())) <= 80 and max(map(len, page.splitlines())) <= 80
    for word in ("Union", "Optional", "None", "Literal", "typing", "class '", "PosixPath", "<factory>", "inspect._"):
        assert word not in page, word
    examples = page.split("examples:\n")[1].split("\n\n")[0].splitlines()
    assert len(examples) >= 2 and page.index("examples:") < 200, "at the top"
    for option, setting in COMMANDS[name].settings().items():
        if setting.group is None and option not in COMMANDS[name].positional():
            assert f"--{option}" in page and option.rpartition(".")[2] in short
        assert setting.description, f"{option} is not explained"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_one_group(name: str) -> None:
    command = COMMANDS[name]
    grouped = [option for options in command.groups.values() for option in options.split()]
    assert len(grouped) == len(set(grouped)) and set(grouped) <= command.settings().keys()
    assert set(command.unnamed.split()) <= command.settings().keys()


@pytest.mark.parametrize("example", [example for command in COMMANDS.values() for example in command.examples])
def test_every_example_can_be_typed(example: str) -> None:
    program, *words = shlex.split(example)
    assert program == "flexpredict"
    name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
    assert COMMANDS[name].arguments(words[len(name.split()) :]) or name == "demo"


def test_choices_and_defaults_are_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help", "all"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "inside the encoder (default: ijepa)" in said
    assert "--optimizer.betas N N AdamW's moving-average factors (default: 0.9 0.999)" in said
    assert "--normalize_pixels true|false" in said and "--resume continue" in said
    assert "--loggers LOGGERS ..." in said and "the interrupted run in --out" in said


def test_one_group_or_option_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help", "positions"]) == 0
    said = capsys.readouterr().out
    assert "--positions.noise_std N" in said and "--optimizer" not in said and "examples" not in said
    for topic in ("noise-std", "--positions.noise_std"):
        assert main(["help", "pretrain"]) == main(["pretrain", "-h", topic]) == 0
        assert capsys.readouterr().out.count("--positions.noise_std N") == 1
    assert main(["pretrain", "--help", "postions"]) == 2
    assert "called 'postions'. Did you mean 'positions'?" in capsys.readouterr().err


def test_the_list_of_commands_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in COMMANDS)
    assert max(map(len, said.splitlines())) <= 80
    assert main(["evaluate"]) == 0 and "evaluate davis" in capsys.readouterr().out
