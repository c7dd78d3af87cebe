"""Links in the documentation lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_links_lead_to_files_that_exist() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "reference" / "README.md"]
    broken = {
        (str(document.relative_to(ROOT)), target)
        for document in documents
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if "://" not in target and not (document.parent / target).exists()
    }
    assert broken == set()
