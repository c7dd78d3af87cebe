"""Messages: below the command line, they name settings and not flags."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "flexpredict"
FLAG = re.compile(r"(?<![\w-])--[a-z]")


def test_no_message_below_the_command_line_names_a_flag() -> None:
    wrong = []
    for file in SOURCE.rglob("*.py"):
        package = file.relative_to(SOURCE).parts[0]
        if package in {"commands", "cli.py"}:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UserError":
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                wrong += [(file.name, text) for text in texts if isinstance(text, str) and FLAG.search(text)]
    assert wrong == []
