"""Messages: below the command line, they name settings and not flags."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "flexpredict"
FLAG = re.compile(r"(?<!var\()(?<![\w-])--[a-z]")  # var(--color) is CSS


def test_no_message_below_the_command_line_names_a_flag() -> None:
    wrong = []
    for file in SOURCE.rglob("*.py"):
        package = file.relative_to(SOURCE).parts[0]
        if package not in {"commands", "cli.py"}:
            wrong += [(file.name, text) for text in _texts(ast.parse(file.read_text("utf-8"))) if FLAG.search(text)]
    assert wrong == []


def test_no_page_names_a_flag() -> None:
    pages = (SOURCE / "reports" / "templates").glob("*")
    assert [page.name for page in pages if FLAG.search(page.read_text("utf-8"))] == []


def _texts(module: ast.Module) -> Iterator[str]:
    """What the code may print: no docstrings, no whole command lines, no options of a parser."""
    nodes = [module]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            declares_option = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not declares_option and not is_docstring:
                nodes += ast.iter_child_nodes(node)
            continue
        if "flexpredict " not in text:
            yield text
