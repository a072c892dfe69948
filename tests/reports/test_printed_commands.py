"""Each command that a refusal or a caveat prints can be run, and removes the reason for it."""

import re
import shlex

import pytest

from zoo import cli
from zoo.errors import InputError
from zoo.reports.fit import fit
from zoo.reports.report import build

PLUGIN = '''\
import zoo


@zoo.register("printed_slope")
class Slope(zoo.Encoding):
    """A slope."""

    relative = True

    def bias(self, head, q, k):
        return (k - q) * 0.1
'''
BROAD = ["--lengths", "8,16", "--set", "evaluate.max_tokens=400", "--set", "evaluate.stride=0.25",
         "--set", "evaluate.split=valid"]  # fmt: skip


def printed(runs):
    """The commands of a comparison, and its text."""
    try:
        report = build(runs)
    except InputError as error:
        (text,) = re.findall("measure again with: (.*)", str(error)) or [""]
        return [one for one in text.split("; ") if one], str(error)
    return [one.command for one in report.caveats if one.command], "\n".join(map(str, report.caveats))


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_every_printed_command_removes_its_reason(here, recipe, forgetful_registry):
    plugin = here / "mine.py"
    plugin.write_text(PLUGIN)
    sets = ["trainer.max_steps=2", "evaluate.lengths=[8,16]"]
    changes = {
        "a": ["model.encoding=alibi"],
        "b": ["model.encoding=rope", "evaluate.max_tokens=300", "evaluate.split=test"],
        "c": [f"plugins=[{plugin}]", "model.encoding=printed_slope"],
    }
    runs = [fit(recipe("text", *sets, *own), out=here / "runs" / name) for name, own in changes.items()]
    named = ["--set", f"plugins=[{plugin}]"]
    assert cli.main(["evaluate", str(runs[0]), *BROAD, "--protocol", "nonoverlapping,sliding"]) == 0
    assert cli.main(["evaluate", str(runs[0]), *BROAD[:2], "--protocol", "fixed_targets,per_position"]) == 0
    assert cli.main(["evaluate", str(runs[1]), *BROAD[:2], "--set", "evaluate.split=valid"]) == 0
    assert cli.main(["evaluate", str(runs[2]), "--lengths", "8", *named]) == 0
    seen = set()
    for _ in range(6):
        commands, text = printed(runs)
        assert not seen.intersection(commands), text
        if not commands:
            break
        seen |= set(commands)
        for command in commands:
            assert cli.main(shlex.split(command)[3:]) == 0, command
    assert not commands and "not evaluated" not in text and "not comparable" not in text
    assert any(f"plugins=[{plugin}]" in one for one in seen)
    assert any("evaluate.max_tokens=" in one for one in seen)
    assert any("evaluate.split=valid" in one for one in seen)
