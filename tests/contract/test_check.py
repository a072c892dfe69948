"""Each faulty plugin breaks the law that it should, and `zoo check` reports it; correct plugins pass."""

import random
import re
from pathlib import Path

import pytest
import torch
from faults import FAULTS, SOURCES

from zoo import cli
from zoo.contract import LAWS, Subject, check
from zoo.contract.law import Law, Outcome, beyond, examine, farthest, within
from zoo.contract.subject import subjects_of, subjects_with
from zoo.recipe import resolve

ROOT = Path(__file__).parents[2]
BY_NAME = {law.name: law for law in LAWS}

ONLY_THERE = [
    "no_docstring", "option_never_read", "policy_without_option", "option_changes_shape",
    "tensor_is_no_buffer", "table_in_a_submodule", "tensor_without_device", "queries_taken_for_last_rows",
    "full_table_kept", "reads_a_value", "angles_in_bf16", "distances_in_bf16", "rotate_gives_float32",
    "constant_bias", "encoder_is_causal", "documents_forgotten", "relative_undeclared",
    "positions_read_undeclared", "parameter_unused", "values_shifted_over_documents",
]  # fmt: skip
"""Faulty plugins that keep every other law."""
EXPENSIVE = {
    "the fused kernel equals the reference",
    "torch.compile needs no graph break",
    "two processes train one model",
    "memory grows with the length, not its square",
}
QUICK = [law for law in LAWS if law.name not in EXPENSIVE]


@pytest.fixture
def failed_laws(faulty, forgetful_registry):
    """The laws among `names` that a faulty plugin breaks."""

    def failed_laws(name, names):
        (description,) = forgetful_registry.load_plugin(faulty(name))
        verdicts = examine(subjects_of(description)[0], [law for law in LAWS if law.name in names])
        return [verdict.law.name for verdict in verdicts if verdict.failures]

    return failed_laws


def with_needs(name):
    """A law and all that it needs."""
    return {name}.union(*map(with_needs, BY_NAME[name].needs))


def test_every_law_has_a_faulty_plugin():
    assert set(BY_NAME) == set(FAULTS.values())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.launch) if name == "random_update" else name for name in FAULTS],
)
def test_a_faulty_plugin_breaks_its_law_and_keeps_those_that_the_law_needs(name, failed_laws):
    assert failed_laws(name, with_needs(FAULTS[name])) == [FAULTS[name]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ONLY_THERE)
def test_a_faulty_plugin_keeps_all_other_laws(name, failed_laws):
    names = {law.name for law in QUICK} | {FAULTS[name]}
    assert failed_laws(name, names) == [FAULTS[name]]


@pytest.mark.parametrize("name", ["constructor_raises", "misspelled_hook", "head_missing"])
def test_no_expensive_law_is_tried_on_a_plugin_that_cannot_run(name, faulty, forgetful_registry):
    verdicts = examine(subjects_of(*forgetful_registry.load_plugin(faulty(name)))[0], LAWS)
    assert [verdict.law.name for verdict in verdicts if verdict.failures] == [FAULTS[name]]
    for verdict in (one for one in verdicts if one.law.name in EXPENSIVE):
        assert not verdict.findings and set(verdict.causes) <= {FAULTS[name]}


# The command.


@pytest.fixture
def here(tmp_path, monkeypatch, forgetful_registry):
    """A working directory with the plugins of the README and of the guide."""
    monkeypatch.chdir(tmp_path)
    pages = [ROOT / "docs" / "add-your-own.md", ROOT / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for plugin, name in re.findall(r"```python\n(# (my_\w+\.py)\n.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(plugin, encoding="utf-8")
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Without the expensive laws."""
    monkeypatch.setattr(check, "LAWS", QUICK)


@pytest.fixture
def few(monkeypatch):
    """Only the laws that shapes are right and that the output changes."""
    names = with_needs("it changes the output")
    monkeypatch.setattr(check, "LAWS", [law for law in LAWS if law.name in names])


@pytest.mark.slow
def test_the_plugin_of_the_readme_keeps_all_laws(here, capsys):
    assert cli.main(["check", "my_encoding.py", "--all"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "root: Scores fall with the square root of distance."
    assert lines[-1].startswith("root passes all ") and "do not apply" in lines[-1]
    assert "not tried" not in printed
    for law in LAWS:
        assert re.search(rf"^{re.escape(law.name)} +(passed +\d|does not apply )", printed, re.M), law.name
    assert "note: no paper is named; option slope is not described" in lines
    assert re.search(
        r"^causality +passed +1 of 1 +its own token moves it by \S+ \(at least 0.001\)$", printed, re.M
    )


def test_laws_that_are_slow_are_named_and_not_tried(here, capsys, monkeypatch):
    names = with_needs("it changes the output")
    monkeypatch.setattr(check, "LAWS", [law for law in LAWS if law.slow or law.name in names])
    assert cli.main(["check", "my_encoding.py"]) == 0
    printed = capsys.readouterr().out
    slow = "slow (--all tries them): torch.compile needs no graph break; two processes train one model"
    assert slow in " ".join(printed.split())
    assert not any(re.search(rf"^{law.name} +passed", printed, re.M) for law in LAWS if law.slow)


@pytest.mark.parametrize(("file", "name"), [("my_rotary.py", "turned"), ("my_gate.py", "gated_buckets")])
def test_the_plugins_of_the_guide_keep_all_laws(here, quick, capsys, file, name):
    assert cli.main(["check", file]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{name} passes all ")


def test_a_fault_is_reported_with_its_hook_file_and_line(here, quick, capsys, faulty, text_at):
    assert cli.main(["check", str(faulty("score_sees_later_keys"))]) == 1
    printed = capsys.readouterr()
    assert "FAILED: causality. Changing a later token changes no output of a decoder" in printed.out
    output = " ".join(printed.out.split())
    (place,) = re.findall(r"(\S+:\d+): score of 'score_sees_later_keys' depends on a later token", output)
    assert text_at(place).startswith("def score")
    assert re.match(r"score_sees_later_keys fails \d+ of \d+ laws: .*causality", printed.err.splitlines()[-1])
    assert len((printed.out + printed.err).splitlines()) <= 25


EXITS = SOURCES["score_sees_later_keys"].partition("    def ")[0]


@pytest.mark.parametrize(("source", "cause"), [
    (SOURCES["constructor_raises"], "RuntimeError: no table of slopes"),
    (EXITS + "    def __init__(self, size):\n        raise SystemExit(0)\n", "SystemExit"),
    (EXITS + "    def bias(self, head, q, k):\n        raise SystemExit(0)\n", "SystemExit"),
    (EXITS + "    def score(self, q, k, context):\n        return context.distance().log()\n", "a negative"),
], ids=["raises", "exits", "bias exits", "nan"])  # fmt: skip
def test_an_exception_breaks_a_law_without_a_traceback(here, quick, capsys, faulty, source, cause):
    assert cli.main(["check", str(faulty("own", source))]) == 1
    printed = capsys.readouterr()
    assert cause in " ".join(printed.out.split()) and "Traceback" not in printed.out + printed.err


@pytest.mark.slow
def test_the_options_of_a_built_in_encoding_are_tried(here, quick, capsys):
    assert cli.main(["check", "alibi"]) == 0
    printed = capsys.readouterr().out
    assert "alibi, alibi slopes=geometric, alibi slopes=harmonic, alibi form=one_sided" in printed
    assert cli.main(["check", "alibi", "--set", "form=one_sided"]) == 0
    assert "tried as decoder and encoder\n" in capsys.readouterr().out
    assert cli.main(["check", "[alibi, {name: shaw, values: false}]"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("alibi+shaw passes all ")


@pytest.mark.parametrize("arguments, message", [
    (["alibbi"], "did you mean 'alibi'?"),
    (["needy.py"], "give --set rows=..."),
    (["rope", "--set", "base"], "--set base: "),
    (["rope", "--set", "partial=3"], "encoding.partial: "),
    (["{name: rope"], "not YAML"),
    (["[rope, alibi]", "--set", "base=3"], "of one encoding"),
])  # fmt: skip
def test_wrong_input_is_exit_2(here, quick, capsys, arguments, message):
    (here / "needy.py").write_text(
        "import zoo\n\n@zoo.register('needy')\nclass Needy(zoo.Encoding):\n"
        "    'Needs rows.'\n    def __init__(self, size, *, rows: int):\n        super().__init__(size)\n"
    )
    assert cli.main(["check", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and "Traceback" not in printed.err and printed.out == ""


PLUGIN = """import zoo

@zoo.register("own")
class Own(zoo.Encoding):
    'Scores fall with distance.'
    family, relative = "bias", True

"""


OWN = "    def biases(self, head, q, k):\n        return -(head + 1.0) * (q - k).abs()\n"
USED = OWN + "    def bias(self, head, q, k):\n        return self.biases(head, q, k)\n"
BIAS = OWN.replace("biases", "bias")


@pytest.mark.parametrize(("body", "message"), [
    (USED, None),
    (USED + "    def normalize(self, logits):\n        return logits\n", "reads 'normalize'; the hooks are"),
    (BIAS + "    def __init__(self, size):\n        super().__init__(size)\n        self.sum = 3\n", "'sum'"),
    (BIAS + "    extrapolate = 'yes'\n", "did you mean the attribute 'extrapolates'?"),
    (BIAS + "    @property\n    def max_lenght(self):\n        return 8\n", "the attribute 'max_length'?"),
    (BIAS + "    def scores(self, q, k, context):\n        return None\n", "did you mean the hook 'score'?"),
])  # fmt: skip
def test_names_that_nothing_reads_are_reported(here, quick, capsys, body, message):
    (here / "plugin.py").write_text(PLUGIN + body)
    assert cli.main(["check", "plugin.py", "--verbose"]) == bool(message)
    assert not message or message in " ".join(capsys.readouterr().out.split())


def test_a_fault_is_printed_before_the_next_law_is_tried(here, monkeypatch, capsys, faulty):
    printed = []

    def later(subject):
        printed.append(capsys.readouterr().out)
        yield Outcome(True)

    monkeypatch.setattr(check, "LAWS", [BY_NAME["causality"], Law("later", "", later)])
    assert cli.main(["check", str(faulty("score_sees_later_keys"))]) == 1
    assert "score_sees_later_keys.py:" in printed[0]
    assert "FAILED" not in capsys.readouterr().out


def test_a_quick_check_tries_the_laws_that_fit_tries(here, mapping, monkeypatch):
    tried = []

    def examine(subjects, laws, *report):
        tried.append([law.name for law in laws])
        return []

    monkeypatch.setattr(check, "examine", examine)
    check.check("my_encoding.py", quick=True)
    made = mapping("text")
    model, trainer = {**made["model"], "encoding": "root"}, {**made["trainer"], "precision": "bf16-mixed"}
    check.check_plugin(resolve({**made, "model": model, "trainer": trainer}))
    assert tried[0] == tried[1] and len(tried[0]) < len(LAWS)


def test_an_encoding_is_tried_in_a_model_that_is_deep_enough(here, few, capsys):
    pattern = "{name: interleave, pattern: [rope, rope, rope, none]}"
    assert cli.main(["check", f"[{pattern}, alibi]"]) == 0
    (subject, _) = subjects_with({"name": "interleave", "pattern": ["rope", "none", "rope"]})
    assert subject.model().num_layers == 3
    assert subjects_with("rope")[0].model().num_layers == 2


def test_an_encoding_that_declares_that_it_does_nothing_need_not_change_the_output(here, few, capsys):
    (here / "plugin.py").write_text(PLUGIN + "    reads_positions = False\n")
    assert cli.main(["check", "plugin.py"]) == 0
    assert re.search(
        r"^it changes the output +does not apply +it declares that it does nothing$",
        capsys.readouterr().out,
        re.M,
    )
    assert cli.main(["check", "none"]) == 0
    assert cli.main(["check", "drope", "--set", "scale=0"]) == 0


# How laws are tried.


def test_a_law_comes_after_those_that_it_needs():
    names = [law.name for law in LAWS]
    for index, law in enumerate(LAWS):
        assert set(law.needs) <= set(names[:index]), law.name


def test_a_broken_law_stops_those_that_need_it_alone():
    tried = []

    def trial(name, holds):
        def run(subject):
            tried.append((name, subject.kind))
            yield Outcome(holds(subject))

        return run

    laws = [
        Law("first", "", trial("first", lambda subject: subject.kind == "encoder")),
        Law("second", "", trial("second", lambda subject: True), needs=("first",)),
        Law("third", "", trial("third", lambda subject: True), needs=("second",)),
        Law("other", "", trial("other", lambda subject: True), needs=("not among these",)),
    ]
    verdicts = examine([Subject("rope"), Subject("rope", "encoder")], laws)
    assert [verdict.row[1] for verdict in verdicts] == ["FAILED", "not tried", "not tried", "passed"]
    assert [cause for verdict in verdicts for cause in verdict.causes] == ["first", "first"]
    assert [kind for name, kind in tried if name == "third"] == ["encoder"]


def test_a_gradient_may_be_zero_in_the_first_step(forgetful_registry, faulty):
    """The law on a product with one factor at zero. With both at zero neither ever moves."""
    text = SOURCES["parameter_unused"].replace(
        "-self.slope[head]", "-(1 + self.slope[head] * self._idle[head])"
    )
    for name, zeros in (("product", 1), ("both", 2)):
        source = text.replace("torch.ones", "torch.zeros", zeros).replace("parameter_unused", name)
        forgetful_registry.load_plugin(faulty(name, source))
        assert BY_NAME["every parameter has a gradient"].try_on(Subject(name)).passed == (zeros == 1)


def test_a_hook_may_change_its_input_in_place(forgetful_registry, faulty):
    hook = "    def embed(self, x, pos):\n        x += pos.float().sin()[..., None] * x.roll(1, -1)\n"
    forgetful_registry.load_plugin(faulty("own", f"{PLUGIN}{hook}        return x\n"))
    assert BY_NAME["positions are exact in bf16 at 100,000"].try_on(Subject("own")).passed


def test_laws_leave_the_random_state_as_it_was():
    torch.manual_seed(7)
    random.seed(7)
    state, other = torch.get_rng_state(), random.getstate()
    subject = Subject("t5")
    for law in QUICK:
        if law.does_not_apply(subject) is None:
            law.try_on(subject)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == other
    assert torch.is_grad_enabled()


def test_nan_differs_from_everything():
    one = torch.tensor([1.0, torch.nan])
    assert farthest(one, one) == torch.inf
    assert not within(farthest(one, one), 1e-5).passed
    assert farthest(torch.tensor([-torch.inf]), torch.tensor([-torch.inf])) == 0
    with pytest.raises(ValueError, match="shape"):
        farthest(torch.zeros(2), torch.zeros(3))


def test_a_finding_has_its_share_of_the_bound():
    assert within(2e-6, 1e-5).share == pytest.approx(0.2)
    assert not beyond(1e-3, 1e-2, "moved").passed and beyond(1e-3, 1e-2, "moved").share == pytest.approx(10)
