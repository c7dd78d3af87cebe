"""Completion of command lines, by the shells themselves where they are installed."""

import shutil
import subprocess

import pytest

from flexpredict import UserError
from flexpredict.commands.completion import SHELLS, completion_script
from flexpredict.commands.table import COMMANDS


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("p", {"pack", "pretrain", "probe"}),
        ("evaluate d", {"davis"}),
        ("pretrain --positions.k", {"--positions.kind"}),
        ("pretrain --positions.kind s", {"sincos", "stochastic"}),
        ("evaluate davis RUN --wh", {"--which"}),
        ("pretrain f", set()),  # of files, by the shell
    ],
)
def test_bash_completes(line: str, completed: set[str]) -> None:
    words = ["flexpredict", *line.split()]
    script = (
        completion_script("bash", COMMANDS)
        + f"""
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _flexpredict; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    )
    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(printed.stdout.split()) >= completed and bool(printed.stdout.split()) == bool(completed)
    assert printed.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_can_read_their_scripts(shell: str) -> None:
    script = completion_script(shell, COMMANDS)
    assert "--positions.kind" in script or "-l positions.kind" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(UserError, match="Use bash, zsh or fish"):
        completion_script("tcsh", COMMANDS)
