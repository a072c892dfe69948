"""Each wrong plugin is caught by the law that it breaks, and right ones are found right."""

import logging
import random
import re
from pathlib import Path

import pytest
import torch

from zoo import cli
from zoo.contract import LAWS, Subject, check
from zoo.contract.law import Finding, Law, beyond, captured, examine, farthest, within
from zoo.contract.subject import subjects_of

ROOT = Path(__file__).parents[2]
FAULTY = Path(__file__).parent / "faulty"
BY_NAME = {law.name: law for law in LAWS}

FAULTS = {
    "cannot_begin": "it can be built",
    "only_half": "it can be built",
    "without_words": "its description is complete",
    "second_thoughts": "its source and its class agree",
    "for_nobody": "its description is complete",
    "empty_policy": "a length policy is an option",
    "changes_its_mind": "after_training options change no parameter",
    "half_a_state": "its state dict is complete",
    "left_behind": "its state dict is complete",
    "misspelled": "hook names are spelled correctly",
    "wrong_shape": "shapes",
    "too_wide": "shapes",
    "too_narrow": "shapes",
    "no_head_axis": "shapes with padding",
    "single_precision": "precision",
    "without_effect": "it changes the output",
    "elsewhere": "tensors stay on the model's device",
    "counts_calls": "every kernel equals the reference",
    "not_pointwise": "the fused kernel equals the reference",
    "two_biases": "all forms of a bias agree",
    "wants_integers": "positions may be given as floats",
    "not_by_distance": "all forms of a bias agree",
    "assumes_the_last": "blocks of queries equal the full computation",
    "all_pairs": "memory grows with the length, not its square",
    "breaks_the_graph": "torch.compile needs no graph break",
    "coarse_angles": "positions are exact in bf16 at 100,000",
    "coarse_bias": "positions are exact in bf16 at 100,000",
    "leaks_in_score": "causality",
    "leaks_in_read": "causality",
    "mixes_tokens": "causality",
    "looks_back_only": "an encoder attends in both directions",
    "plays_dice": "evaluation is deterministic",
    "forgets_the_offset": "cached decoding equals the full forward",
    "stretches": "cached decoding equals the full forward",
    "refuses_too_late": "cached decoding equals the full forward",
    "counts_after_padding": "cached decoding equals the full forward",
    "counts_rows": "padding changes nothing",
    "sees_padding": "padding changes nothing",
    "divides_by_nothing": "gradients are finite with padding",
    "knows_the_place": "a relative encoding is shift-invariant",
    "too_modest": "an absolute encoding is not shift-invariant",
    "reads_after_all": "reads_positions is declared correctly",
    "ends_unsaid": "the declared length limit holds",
    "ends_too_early": "the declared length limit holds",
    "idle_parameter": "every parameter has a gradient",
    "drifts": "two processes train one model",
}
# Faults of which another law knows nothing: it is this one that catches them, and no other would.
ONLY_THERE = [name for name in FAULTS if name in (
    "without_words", "second_thoughts", "empty_policy", "changes_its_mind", "left_behind", "elsewhere",
    "assumes_the_last", "all_pairs", "breaks_the_graph", "coarse_angles", "coarse_bias", "single_precision",
    "without_effect", "looks_back_only", "too_modest", "reads_after_all", "idle_parameter",
)]  # fmt: skip


# Not slow, and yet what most of a check's time goes to.
QUICK = [law for law in LAWS if not law.slow and law.name != "memory grows with the length, not its square"]


def broken_laws(description, laws):
    return [verdict.law.name for verdict in examine(subjects_of(description)[0], laws) if verdict.broken]


def test_every_wrong_plugin_is_here():
    assert sorted(FAULTS) == sorted(file.stem for file in FAULTY.glob("*.py"))


def test_every_law_has_been_seen_to_fail():
    assert set(BY_NAME) == set(FAULTS.values())


@pytest.mark.launch
@pytest.mark.parametrize("name", FAULTS)
def test_check_names_the_law_that_is_broken(name, forgetful_registry, monkeypatch, capsys):
    law = BY_NAME[FAULTS[name]]
    monkeypatch.setattr(check, "LAWS", [law])
    assert cli.main(["check", str(FAULTY / f"{name}.py"), "--all", "--verbose"]) == 1
    printed = capsys.readouterr()
    assert re.search(rf"^{re.escape(law.name)} +NOT HELD +\d of \d +\S", printed.out, re.M)
    assert f"\nNOT HELD: {law.name}. " in printed.out
    assert printed.err.splitlines()[-1] == f"{name} breaks 1 of 1 laws: {law.name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_so_it_does_among_all_laws_or_a_law_that_it_needs(name, faulty):
    # Two processes for each would take minutes.
    laws = [law for law in LAWS if not law.slow or law.name == FAULTS[name]]
    verdicts = {v.law.name: v for v in examine(subjects_of(faulty(name))[0], laws)}
    broken = [name for name, verdict in verdicts.items() if verdict.broken]
    verdict = verdicts[FAULTS[name]]
    assert verdict.broken or (verdict.needed and set(verdict.needed) <= set(broken))


@pytest.mark.slow
@pytest.mark.parametrize("name", ONLY_THERE)
def test_and_no_other_law_is_blamed(name, faulty):
    description = faulty(name)
    laws = [law for law in QUICK if law.name != FAULTS[name]]
    assert broken_laws(description, laws) == []


# The command.


@pytest.fixture
def here(tmp_path, monkeypatch, forgetful_registry):
    """Where a stranger stands, with the plugin of the README."""
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for plugin, name in re.findall(r"```python\n(# (my_\w+\.py)\n.*?)```", readme, re.DOTALL):
        (tmp_path / name).write_text(plugin, encoding="utf-8")
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Without the laws that take seconds."""
    monkeypatch.setattr(check, "LAWS", QUICK)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_plugin_of_the_readme_is_right(here, capsys, every):
    """The whole command."""
    assert cli.main(["check", "my_encoding.py", *(["--all"] if every else [])]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "root: Scores fall with the square root of distance."
    assert lines[-1].startswith("root keeps all ") and "do not apply" in lines[-1]
    message = (
        "not tried, because they are slow: torch.compile needs no graph break; two processes train one model"
    )
    assert (message in printed, "zoo check my_encoding.py --all" in " ".join(printed.split())) == (
        not every,
    ) * 2
    for law in (law for law in LAWS if every or not law.slow):
        assert re.search(rf"^{re.escape(law.name)} +(held +\d|does not apply )", printed, re.M), law.name
    assert "note: no paper is named; option slope is not described" in lines
    assert re.search(
        r"^causality +held +1 of 1 +its own token moves it by \S+ \(at least 0.001\)$", printed, re.M
    )


def test_the_rotary_plugin_of_the_readme_is_right(here, quick, capsys):
    assert cli.main(["check", "my_rotary.py"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("turned keeps all ")


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "law", "message"), [
    ((".to(x.dtype)", ""), "precision", "gave queries of float32 for bfloat16: cast them back"),
    (("pos.float()", "pos.to(x.dtype)"), "positions are exact in bf16 at 100,000", "angles in float32"),
    ((" if pos.dim() == 1 else angles[:, None]", ""), "shapes with padding", "positions are [B,T]"),
    (("span.k_pos", "span.q_pos"), "shapes with padding", "k at span.k_pos"),
    (('self.register_buffer("rates", rates, persistent=False)', "self.rates = rates"),
     "its state dict is complete", "neither parameter nor buffer"),
])  # fmt: skip
def test_what_the_readme_asks_of_a_rotary_one_is_asked_by_a_law(here, quick, capsys, wrong, law, message):
    text = (here / "my_rotary.py").read_text()
    assert text.count(wrong[0]) == 1
    (here / "my_rotary.py").write_text(text.replace(*wrong))
    assert cli.main(["check", "my_rotary.py"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"NOT HELD: {law}. " in printed and message in printed


def test_a_fault_is_named_with_its_hook_and_line(here, quick, capsys):
    assert cli.main(["check", str(FAULTY / "leaks_in_score.py")]) == 1
    printed = capsys.readouterr()
    assert "NOT HELD: causality. Changing a later token changes no output of a decoder" in printed.out
    output = " ".join(printed.out.split())
    assert "leaks_in_score.py:13: score of 'leaks_in_score' depends on a later token" in output
    assert "(leaks_in_score decoder)" in output
    assert re.match(r"leaks_in_score breaks \d+ of \d+ laws: .*causality", printed.err.splitlines()[-1])
    assert "keeps" not in printed.out


def test_a_plugin_that_crashes_is_reported_in_a_line(here, quick, capsys):
    assert cli.main(["check", str(FAULTY / "cannot_begin.py")]) == 1
    printed = capsys.readouterr()
    assert "RuntimeError: no table of slopes" in printed.out
    assert "Traceback" not in printed.out + printed.err
    assert printed.err.splitlines()[-1] == "cannot_begin breaks 1 of 1 laws: it can be built"
    assert re.search(r"^not tried: \d+ laws that need: it can be built$", printed.out, re.M)


@pytest.mark.parametrize("where", ["constructor", "bias"])
def test_one_that_stops_the_program_is_reported_in_a_line(here, quick, capsys, where):
    """A plugin that leaves must not make it look as if all had been well."""
    plugin = (
        (FAULTY / "leaks_in_score.py").read_text().split("    def ")[0].replace("leaks_in_score", "leaver")
    )
    body = {
        "constructor": "    def __init__(self, size):\n        raise SystemExit(0)\n",
        "bias": "    def bias(self, head, q, k):\n        raise SystemExit(0)\n",
    }
    (here / "leaver.py").write_text(plugin + body[where])
    assert cli.main(["check", "leaver.py"]) == 1
    assert "SystemExit" in capsys.readouterr().out


@pytest.mark.slow
def test_a_file_of_several_is_tried_one_after_the_other(here, quick, capsys):
    text = (here / "my_encoding.py").read_text()
    wrong = (FAULTY / "idle_parameter.py").read_text()
    (here / "two.py").write_text(text + wrong.replace("import zoo\n", ""))
    assert cli.main(["check", "two.py"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("root keeps all ")
    assert printed.err.splitlines()[-1].startswith("idle_parameter breaks 1 of ")


@pytest.mark.slow
def test_one_of_the_zoo_and_its_options(here, quick, capsys):
    assert cli.main(["check", "alibi"]) == 0
    printed = capsys.readouterr().out
    assert "alibi, alibi slopes=geometric, alibi form=one_sided" in printed
    assert cli.main(["check", "alibi", "--set", "form=one_sided"]) == 0
    assert "tried as decoder and encoder\n" in capsys.readouterr().out
    assert cli.main(["check", "[alibi, {name: shaw, values: false}]"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("alibi+shaw keeps all ")


@pytest.mark.parametrize("arguments, message", [
    (["alibbi"], "did you mean 'alibi'?"),
    (["my_encodin.py"], "my_encodin.py: cannot be read: No such file"),
    (["broken.py"], "the plugin cannot be imported: ZeroDivisionError: division by zero"),
    (["empty.py"], "no class here is decorated"),
    (["needy.py"], "encoding 'needy' cannot be tried without rows: give --set rows=..."),
    (["rope", "--set", "bas=3"], "did you mean 'base'?"),
    (["rope", "--set", "base"], "--set base: not of the form option=value"),
    (["rope", "--set", "partial=3"], "encoding.partial: must be less than or equal to 1"),
    (["{name: rope, layuot: half}"], "did you mean 'layout'?"),
    (["{name: rope"], "not YAML"),
    (["[rope, rope]"], "cannot be combined"),
    (["[rope, alibi]", "--set", "base=3"], "of one encoding, not of a list"),
])  # fmt: skip
def test_wrong_input_is_exit_2(here, quick, capsys, arguments, message):
    (here / "empty.py").write_text("import zoo\n")
    (here / "broken.py").write_text(
        (here / "my_encoding.py").read_text().replace('"root"', '"b"') + "1 / 0\n"
    )
    (here / "needy.py").write_text(
        "import zoo\n\n@zoo.register('needy')\nclass Needy(zoo.Encoding):\n"
        "    'Needs rows.'\n    def __init__(self, size, *, rows: int):\n        super().__init__(size)\n"
    )
    assert cli.main(["check", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and "Traceback" not in printed.err
    assert printed.out == ""


# Messages on a broken one: what to mend, and nothing that comes of it.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["misspelled", "wrong_shape", "leaks_in_score", "no_head_axis"])
def test_the_first_screen_shows_what_to_fix(here, quick, capsys, name):
    assert cli.main(["check", str(FAULTY / f"{name}.py")]) == 1
    printed = capsys.readouterr()
    assert len((printed.out + printed.err).splitlines()) <= 25
    assert f"/{name}.py:" in printed.out


def test_a_misspelled_hook_is_reported_and_no_advice_follows(here, quick, capsys):
    wrong = (FAULTY / "misspelled.py").read_text().replace("    relative = True\n", "")
    (here / "plugin.py").write_text(wrong)
    assert cli.main(["check", "plugin.py"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "plugin.py:12: 'biass' is not used by the model; did you mean the hook 'bias'?" in printed
    assert "relative" not in printed


def test_a_wrong_shape_names_hook_file_and_line(here, quick, capsys):
    assert cli.main(["check", str(FAULTY / "wrong_shape.py")]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    expected = "bias_table of 'wrong_shape' gave [5, 9, 9] where [6, 9, 9] is needed"
    assert f"wrong_shape.py:21: {expected}" in printed
    assert re.search(r"not tried: \d+ laws that need: shapes ", printed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hint"), [
    ("single_precision", "gave queries of float32 for bfloat16: cast them back with .to(q.dtype)"),
    ("coarse_angles", "compute positions and angles in float32 and round once, at the end"),
    ("no_head_axis", "positions are [B,T]: give them an axis for the heads, pos[:, None]"),
])  # fmt: skip
def test_a_rotary_plugin_is_hinted_what_it_must_know(here, quick, capsys, name, hint):
    assert cli.main(["check", str(FAULTY / f"{name}.py")]) == 1
    assert hint in " ".join(capsys.readouterr().out.split())


PLUGIN = """import zoo

@zoo.register("own")
class Own(zoo.Encoding):
    'Scores fall with distance.'
    family, relative = "bias", True

"""


@pytest.mark.slow
def test_a_method_that_the_plugin_itself_calls_is_no_misspelled_hook(here, quick, capsys):
    body = (
        "    def biases(self, head, q, k):\n        return -(head + 1.0) * (q - k).abs()\n"
        "    def bias_table(self, span, num_heads):\n"
        "        return super().bias_table(span, num_heads)\n"
        "    def bias(self, head, q, k):\n        return self.biases(head, q, k)\n"
    )
    (here / "plugin.py").write_text(PLUGIN + body)
    assert cli.main(["check", "plugin.py"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("line", "meant"), [
    ("    extrapolate = 'yes'\n", "attribute 'extrapolates'"),
    ("    @property\n    def max_lenght(self):\n        return 8\n", "attribute 'max_length'"),
    ("    def scores(self, q, k, span):\n        return None\n", "hook 'score'"),
])  # fmt: skip
def test_what_is_nearly_a_fact_or_hook_is_reported(here, quick, capsys, line, meant):
    (here / "plugin.py").write_text(
        PLUGIN + line + "    def bias(self, head, q, k):\n        return -(head + 1.0) * (q - k).abs()\n"
    )
    assert cli.main(["check", "plugin.py"]) == 1
    printed = capsys.readouterr()
    assert f"did you mean the {meant}?" in " ".join(printed.out.split())
    assert printed.err.splitlines()[-1].startswith("own breaks 1 of ")  # after a slow machine's progress bar


def test_what_declares_that_it_is_none_need_not_change_anything(here, quick, capsys):
    (here / "plugin.py").write_text(PLUGIN + "    reads_positions = False\n")
    assert cli.main(["check", "plugin.py"]) == 0
    assert re.search(
        r"^it changes the output +does not apply +it declares that it does nothing$",
        capsys.readouterr().out,
        re.M,
    )
    assert cli.main(["check", "none"]) == 0
    assert cli.main(["check", "drope", "--set", "scale=0"]) == 0


def test_each_of_a_list_changes_something(here, quick, forgetful_registry, capsys):
    forgetful_registry.read_plugin(FAULTY / "without_effect.py")
    assert cli.main(["check", "[rope, without_effect]"]) == 1
    assert "NOT HELD: it changes the output" in capsys.readouterr().out


def test_what_a_plugin_prints_is_kept_back_and_shown_on_demand(here, quick, capsys):
    body = (
        "    def bias(self, head, q, k):\n"
        "        print('on stdout')\n        print('on stderr', file=sys.stderr)\n"
        "        warnings.warn('beware')\n        return -(head + 1.0) * (q - k).abs()\n"
    )
    body = "    fused = False\n" + body
    (here / "plugin.py").write_text("import sys, warnings\nprint('imported')\n" + PLUGIN + body)
    assert cli.main(["check", "plugin.py"]) == 0
    printed = capsys.readouterr()
    assert re.search(
        r"^\d+ lines were printed during the trial: zoo check plugin.py --verbose", printed.out, re.M
    )
    for text in ("on stdout", "on stderr", "beware", "imported"):
        assert text not in printed.out + printed.err
    assert cli.main(["check", "plugin.py", "--verbose"]) == 0
    printed = capsys.readouterr()
    for text in ("  on stdout", "  on stderr", "UserWarning: beware"):
        assert printed.out.count(text) == 1
    assert printed.err == ""


def test_logs_of_torch_are_hidden_while_laws_are_tried():
    logger = logging.getLogger("torch._dynamo")
    with captured():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.ERROR)


# The bench itself.


def test_what_a_law_needs_is_tried_before_it():
    names = [law.name for law in LAWS]
    for index, law in enumerate(LAWS):
        assert set(law.needs) <= set(names[:index]), law.name


def test_a_broken_law_stops_those_that_need_it_and_no_others():
    tried = []

    def trial(name, holds):
        def run(subject):
            tried.append((name, subject.kind))
            yield Finding(holds(subject))

        return run

    laws = [
        Law("first", "", trial("first", lambda subject: subject.kind == "encoder")),
        Law("second", "", trial("second", lambda subject: True), needs=("first",)),
        Law("third", "", trial("third", lambda subject: True), needs=("second",)),
        Law("other", "", trial("other", lambda subject: True), needs=("not among these",)),
    ]
    verdicts = examine([Subject("rope"), Subject("rope", "encoder")], laws)
    assert [verdict.row[1] for verdict in verdicts] == ["NOT HELD", "not tried", "not tried", "held"]
    assert [cause for verdict in verdicts for cause in verdict.needed] == ["first", "first"]
    assert [kind for name, kind in tried if name == "third"] == ["encoder"]


def test_what_starts_at_zero_may_wait_a_step_for_its_gradient(forgetful_registry, tmp_path):
    """A product of which one factor starts at zero; of two that do, neither ever moves."""
    text = (FAULTY / "idle_parameter.py").read_text().replace("idle_parameter", "product")
    text = text.replace("-self.slope[head]", "-(1 + self.slope[head] * self.idle[head])")
    (tmp_path / "product.py").write_text(text.replace("torch.ones", "torch.zeros", 1))
    forgetful_registry.read_plugin(tmp_path / "product.py")
    assert BY_NAME["every parameter has a gradient"].try_on(Subject("product")).held
    (tmp_path / "both.py").write_text(text.replace("torch.ones", "torch.zeros").replace("product", "both"))
    forgetful_registry.read_plugin(tmp_path / "both.py")
    assert not BY_NAME["every parameter has a gradient"].try_on(Subject("both")).held


def test_laws_leave_the_callers_random_numbers_alone():
    torch.manual_seed(7)
    random.seed(7)
    state, other = torch.get_rng_state(), random.getstate()
    subject = Subject("t5")
    for law in LAWS:
        if not law.slow and law.does_not_apply(subject) is None:
            law.try_on(subject)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == other
    assert torch.is_grad_enabled()


def test_a_law_that_raises_is_broken():
    def fails(subject):
        yield Finding(True)
        raise KeyError("table")

    finding = Law("fails", "", fails).try_on(Subject("rope"))
    assert not finding.held and finding.numbers == "KeyError: 'table'"


def test_nan_is_no_agreement():
    one = torch.tensor([1.0, torch.nan])
    assert farthest(one, one) == torch.inf
    assert not within(farthest(one, one), 1e-5).held
    assert farthest(torch.tensor([-torch.inf]), torch.tensor([-torch.inf])) == 0
    with pytest.raises(ValueError, match="shape"):
        farthest(torch.zeros(2), torch.zeros(3))


def test_numbers_tell_how_near_the_bound_was():
    assert within(2e-6, 1e-5).share == pytest.approx(0.2)
    assert not beyond(1e-3, 1e-2, "moved").held and beyond(1e-3, 1e-2, "moved").share == pytest.approx(10)
