"""Completion of command lines: scripts for bash, zsh and fish, made of what the commands declare."""

import shlex
from collections.abc import Iterator, Mapping

from flexpredict.commands.command import Command
from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.declarations import Setting

_BASH = """\
_flexpredict() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} first=2 choices= options=
    case $command in {families}) command="$command ${{COMP_WORDS[2]}}" first=3 ;; esac
    if ((COMP_CWORD < first)); then
        ((COMP_CWORD == 1)) && choices={commands}
        case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
{members}
        esac
    else
        case "$command ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{choices}
        esac
        case $command in
{options}
        esac
        [[ $word == -* ]] && choices=$options
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _flexpredict flexpredict
"""
_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"
SHELLS = ("bash", "zsh", "fish")


def completion_script(shell: str, commands: Mapping[str, Command]) -> str:
    """The script that the shell evaluates when it starts."""
    if shell not in SHELLS:
        raise UserError(f"There is no completion for '{shell}'.{did_you_mean(shell, SHELLS)} Use bash, zsh or fish.")
    if shell == "fish":
        return "\n".join(_fish(commands)) + "\n"
    return (_ZSH if shell == "zsh" else "") + _bash(commands)


def _bash(commands: Mapping[str, Command]) -> str:
    families = _families(commands)
    members = [_case(f"2 {family}", "choices", " ".join(names)) for family, names in families.items()]
    choices, options = [], []
    for name, command in commands.items():
        settings = _options(command)
        choices += [
            _case(f"{name} --{key}", "choices", " ".join(one.choices)) for key, one in settings if one.choices
        ]
        options.append(_case(name, "options", " ".join(f"--{key}" for key, _ in settings)))
    first_words = " ".join(dict.fromkeys(name.split()[0] for name in commands))
    return _BASH.format(
        families="|".join(families),
        commands=shlex.quote(first_words),
        members="\n".join(members),
        choices="\n".join(choices),
        options="\n".join(options),
    )


def _case(pattern: str, variable: str, value: str) -> str:
    return f"            {shlex.quote(pattern)}) {variable}={shlex.quote(value)} ;;"


def _fish(commands: Mapping[str, Command]) -> Iterator[str]:
    for name, command in commands.items():
        *first, last = name.split()
        here = f"__fish_seen_subcommand_from {first[0]}" if first else "__fish_use_subcommand"
        yield f"complete -c flexpredict -f -n '{here}' -a {last} -d {shlex.quote(command.summary)}"
        seen = " && ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for key, setting in _options(command):
            takes = f" -x -a {shlex.quote(' '.join(setting.choices))}" if setting.choices else ""
            yield f"complete -c flexpredict -n '{seen}' -l {key}{takes} -d {shlex.quote(_short(setting))}"
    for family in _families(commands):
        yield f"complete -c flexpredict -f -n '__fish_use_subcommand' -a {family}"


def _options(command: Command) -> list[tuple[str, Setting]]:
    return [(name, one) for name, one in command.settings().items() if one.group is None or one.choices]


def _short(setting: Setting) -> str:
    return setting.description.partition(";")[0].rstrip(".")


def _families(commands: Mapping[str, Command]) -> dict[str, list[str]]:
    """The second words of commands with two words, by their first word."""
    families: dict[str, list[str]] = {}
    for name in commands:
        first, *second = name.split()
        if second:
            families.setdefault(first, []).extend(second)
    return families
