"""Whatever is typed: it is understood, or refused in one paragraph that names no Python type."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flexpredict import UserError
from flexpredict.cli import main
from flexpredict.commands.flags import with_flags
from flexpredict.commands.table import COMMANDS

OPTIONS = {name: list(command.settings()) for name, command in COMMANDS.items()}
VALUES = st.one_of(
    st.sampled_from(
        [
            "",
            "-1",
            "0",
            "1",
            "1e400",
            "nan",
            "null",
            "true",
            "[",
            "[1, 2]",
            "{a: 1}",
            "{a",
            "a,b",
            "ijepa",
            "stop",
            "-",
        ]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8),
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(list(COMMANDS)))
    words = name.split()
    for _ in range(draw(st.integers(0, 5))):
        option = draw(st.sampled_from(OPTIONS[name]))
        if draw(st.booleans()):  # with a typing error, or below another one
            at = draw(st.integers(0, len(option)))
            option = option[:at] + draw(st.sampled_from(["", "x", ".", "-", "_"])) + option[at + 1 :]
        values = draw(st.lists(VALUES, max_size=3))
        words += [f"--{option}={values[0]}"] if values and draw(st.booleans()) else [f"--{option}", *values]
    return words + draw(st.lists(VALUES, max_size=2))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=command_lines())
def test_any_command_line_is_understood_or_refused_in_one_paragraph(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
    command, understood = COMMANDS[name], dict[str, Any]()
    try:
        understood = command.arguments(words[len(name.split()) :])
    except UserError as error:
        message = with_flags(str(error), command.settings())
        assert message and all(word not in message for word in ("Traceback", "Union", "typing", "<class", "Parser"))
        assert main(words) == 2, "nothing was started"
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("flexpredict: ") and printed.err.count("\n") == 1
    assert understood.keys() <= command.settings().keys()
