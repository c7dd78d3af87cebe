"""Data flows one way: every package imports from the layers below its own, and from nothing else."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "flexpredict"
# From low to high. Names in one layer do not import each other. Modules beside the packages that are not named
# (errors, files, randomness, …) lie below all of these.
LAYERS = (
    ("settings",),
    ("data",),
    ("masking",),
    ("model",),
    ("methods",),
    ("runs",),
    ("encoders",),
    ("training",),
    ("costs",),
    ("features",),
    ("evaluation",),
    ("studies", "exports", "prepare"),
    ("reports",),
    ("pretraining",),
    ("demo",),
    ("api",),
    ("__init__",),
    ("commands",),
    ("cli",),
)


def test_imports_go_down_the_layers() -> None:
    wrong = {
        (str(file.relative_to(SOURCE)), module)
        for file in SOURCE.rglob("*.py")
        for module in imported(file)
        if not may_import(layer_name(file), top_name(module))
    }
    assert wrong == set(), "these imports go up: move what both sides need to a lower layer"


def test_every_package_has_a_layer() -> None:
    packages = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").is_file()}
    assert packages - {name for layer in LAYERS for name in layer} == set()


def test_tests_do_not_import_each_other() -> None:
    """What they share is in conftest.py or in a module beside it, which no test module shadows."""
    tests = list(Path(__file__).parent.rglob("test_*.py"))
    names = {file.stem for file in tests}
    assert len(names) == len(tests), "two test modules have one name"
    wrong = {(file.name, module) for file in tests for module in modules(file) if module.split(".")[0] in names}
    assert wrong == set()


def may_import(importer: str, imported: str) -> bool:
    """A package may import itself, as may the bottom; all else must come from a lower layer."""
    return importer == imported or height(imported) < height(importer) or height(importer) == height(imported) == -1


def height(name: str) -> int:
    return next((number for number, layer in enumerate(LAYERS) if name in layer), -1)


def layer_name(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def top_name(module: str) -> str:
    _, _, rest = module.partition(".")
    first = rest.split(".")[0]
    is_module = (SOURCE / first).is_dir() or (SOURCE / f"{first}.py").is_file()
    return first if first and is_module else "__init__"


def imported(file: Path) -> Iterator[str]:
    """What it imports of this package, inside functions too. The version is not one of the package's verbs."""
    for module in modules(file):
        if module.split(".")[0] == "flexpredict" and module != "flexpredict.__version__":
            yield module


def modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{file.name}: imports name the whole path"
            if node.module == "flexpredict":
                yield from (f"flexpredict.{alias.name}" for alias in node.names)
            else:
                yield node.module
