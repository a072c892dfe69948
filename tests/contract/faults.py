"""The plugins of `faulty.py`: the law that each breaks, and its source."""

import re
from pathlib import Path

HEAD, *_SECTIONS = re.split(r"\n# Law: ", Path(__file__).with_name("faulty.py").read_text())
FAULTS, SOURCES = {}, {}
for _section in _SECTIONS:
    _law, _, _text = _section.partition("\n")
    for _source in re.split(r"\n(?=@zoo)", _text):
        _name = re.search(r'"(\w+)"', _source)[1]
        FAULTS[_name] = _law
        SOURCES[_name] = HEAD.partition("# fmt: off\n")[2].strip() + "\n" + _source.strip() + "\n"
