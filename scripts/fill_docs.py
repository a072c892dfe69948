"""Fill the tables and code of docs/*.md in from stored results, the README and the tests' plugins.

    python scripts/fill_docs.py            # write
    python scripts/fill_docs.py --check    # exit code 1 if a page is out of date

A page has `<!-- zoo: KIND NAME -->` before such a part and `<!-- end -->` after it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

from zoo.gallery import results
from zoo.gallery.markdown import escaped

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "tests" / "plugins" / "examples.py"
PART = re.compile(r"(?<=^<!-- zoo: )(\w+) ?([^\n]*?) -->\n.*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def filled(markdown: str) -> str:
    """A page with its parts written anew.

    Raises:
        KeyError, ValueError: an unknown kind of part, or nothing of that name.
    """
    return PART.sub(lambda found: f"{found[0].splitlines()[0]}\n\n{PARTS[found[1]](found[2])}\n", markdown)


def results_of(folder: str) -> str:
    study = next(study for study in results.STUDIES if study.folder == folder)
    return (
        f"{results.curve_table(study)}\n{escaped(study.title)}: {escaped(study.setting)}; 95 % intervals.\n\n"
        f"![{study.title} by length in tokens](../scripts/results/{folder}/compare.png)\n"
    )


def costs(_: str) -> str:
    return f"{results.costs_table()}\nRelative to `none`: {escaped(results.setting_text())}.\n"


def readme(name: str) -> str:
    """The block of README.md that begins with the name of its file; a test runs it."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (block,) = (block for block in blocks if block.startswith(f"# {name}\n"))
    return f"```python\n{block}```\n"


def plugin(constant: str) -> str:
    """A plugin that the tests check, train and evaluate."""
    (source,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(PLUGINS.read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == constant
    )
    source = source.strip().replace("'''", '"""')
    return f"```python\n{source}\n```\n"


PARTS: dict[str, Callable[[str], str]] = {
    "results": results_of,
    "costs": costs,
    "readme": readme,
    "plugin": plugin,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; report pages out of date")
    check = parser.parse_args().check
    stale = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        before = page.read_text()
        after = filled(before)
        if after != before:
            stale.append(page.relative_to(ROOT))
            if not check:
                page.write_text(after)
    if stale:
        print(f"{'out of date' if check else 'written'}: {', '.join(map(str, stale))}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
