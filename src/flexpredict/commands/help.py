"""The help page of a command: examples, what it does, and its options in groups, in 80 columns."""

import inspect
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flexpredict.commands.command import Command
from flexpredict.commands.flags import with_flags
from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.declarations import REQUIRED, Setting, alternatives

_WIDTH = 80
_COLUMN = 22  # where descriptions begin


class _Group(NamedTuple):
    name: str
    heading: str
    members: list[Setting]
    folded: bool  # only named on the first page
    nested: bool = False


def help_page(name: str, command: Command, topic: str = "") -> str:
    """The text that `flexpredict NAME --help TOPIC` prints.

    topic: "" for the options that most people need, "all", or the name of one group or option.
    """
    settings, groups = command.settings(), list(_groups(command))
    if topic not in ("", "all"):
        return _about(topic, name, groups, settings)
    summary = (inspect.getdoc(command.load()) or "").partition("\n\nArgs:")[0]
    positional = [settings[name] for name in command.positional()]
    usage = " ".join(_usage(setting, positional) for setting in positional)
    folded = [group for group in groups if group.folded and not topic]
    names = [(group.name + "." * group.nested, ", ".join(map(_last_part, group.members))) for group in folded]
    sections = [
        f"usage: flexpredict {name} {usage} [OPTIONS]".replace("  ", " "),
        "\n".join(["examples:", *(f"  {example}" for example in command.examples)]),
        *(_paragraph(with_flags(part, settings)) for part in summary.split("\n\n")),
        _section("arguments, in this order or by name", map(_argument, positional), settings),
        *(_options(group, settings) for group in groups if group not in folded),
        _section(f"more, explained by `{name} --help all`, or by `{name} --help NAME`", names, ()),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _about(topic: str, name: str, groups: list[_Group], settings: Mapping[str, Setting]) -> str:
    """The options of one group, or the options of this name."""
    wanted = topic.strip("-.").replace("-", "_")
    sections = [_options(group, settings) for group in groups if group.name == wanted]
    found = [one for one in settings.values() if wanted in (one.name, _last_part(one)) and _takes_value(one)]
    if not sections and found:
        sections = [_section("options", map(_option, found), settings)]
    if not sections:
        known = [*(group.name for group in groups), *settings]
        near = did_you_mean(wanted, known, most=1)
        raise UserError(f"{name} has no option or group of options called '{topic}'.{near} Or use --help all.")
    return "\n\n".join(sections) + "\n"


def _groups(command: Command) -> Iterator[_Group]:
    """Settings below their headings: first those without one, then the groups of the command, then nested ones."""
    settings = command.settings()
    elsewhere = {*command.positional(), *" ".join(command.groups.values()).split()}
    options = {name: setting for name, setting in settings.items() if "." not in name and _takes_value(setting)}
    yield _Group("options", "options", [one for name, one in options.items() if name not in elsewhere], False)
    for heading, names in command.groups.items():
        members = [options[name] for name in names.split() if name in options]
        yield _Group(heading, heading, members, heading in command.folded)
    for name, setting in settings.items():
        if setting.group is not None:
            nested = [inner for other, inner in settings.items() if other.startswith(f"{name}.")]
            heading = f"{name}: {inspect.getdoc(setting.group)}".partition("\n\n")[0].rstrip(".")
            yield _Group(name, heading, nested, True, True)


def _takes_value(setting: Setting) -> bool:
    """Whether the setting itself takes a value; some groups are given by their nested settings only."""
    return setting.group is None or bool(setting.choices)


def _last_part(setting: Setting) -> str:
    return setting.name.rpartition(".")[2]


def _options(group: _Group, settings: Mapping[str, Setting]) -> str:
    return _section(group.heading, map(_option, group.members), settings)


def _section(heading: str, entries: Iterable[tuple[str, str]], settings: Collection[str]) -> str:
    lines = [line for left, text in entries for line in _entry(left, with_flags(text, settings))]
    return "\n".join([_paragraph(f"{heading}:"), *lines]) if lines else ""


def _paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_on_hyphens=False)


def _entry(left: str, text: str) -> list[str]:
    """A name and its description, which begins on the next line if the name is long."""
    described = textwrap.wrap(text, _WIDTH - _COLUMN, break_on_hyphens=False)
    if len(left) + 4 > _COLUMN:
        described = ["", *described]
    first, *rest = described or [""]
    return [f"  {left:<{_COLUMN - 2}}{first}".rstrip(), *(" " * _COLUMN + line for line in rest)]


def _usage(setting: Setting, positional: Sequence[Setting]) -> str:
    takes_many = [other for other in positional if other.is_list] == [setting]
    word = setting.name.upper() + (" ..." if takes_many else "")
    return word if setting.default is REQUIRED else f"[{word}]"


def _argument(setting: Setting) -> tuple[str, str]:
    return setting.name.upper(), _description(setting)


def _option(setting: Setting) -> tuple[str, str]:
    return f"--{setting.name} {_value_word(setting)}".rstrip(), _description(setting)


def _value_word(setting: Setting) -> str:
    if setting.is_switch:
        return "" if setting.default is False else "true|false"
    if setting.is_pair:
        return "N N"
    word = "N" if {*alternatives(setting.kind)} <= {int, float} else _last_part(setting).upper()
    return f"{word} ..." if setting.is_list else word


def _description(setting: Setting) -> str:
    text = setting.description.rstrip(".")
    if any(choice not in text for choice in setting.choices):
        text += f": {', '.join(setting.choices[:-1])} or {setting.choices[-1]}"
    default = _shown(setting.default)
    if not default or "default" in text:
        return text
    return f"{text[:-1]}; default: {default})" if text.endswith(")") else f"{text} (default: {default})"


def _shown(default: Any) -> str:
    """As text; empty if a default is not worth showing."""
    if default is REQUIRED or default is None or default is False:
        return ""
    if isinstance(default, tuple | list):
        return " ".join(map(_shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default).lower() if default is True else str(default)
