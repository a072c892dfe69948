"""Rules between keys: each is broken once, and reported at the key to change."""

import ast
from pathlib import Path

import torch

import zoo
from zoo import registry
from zoo.recipe import resolve

BROKEN = {
    "heads_divide_width": (["model.num_heads=5"], "model.num_heads"),
    "groups_divide_heads": (["model.num_kv_heads=3"], "model.num_kv_heads"),
    "first_norm_is_of_an_input": (
        ["model.first_norm=false", "model.norm_position=output"],
        "model.first_norm",
    ),
    "parallel_sums_are_not_normalised": (
        ["model.parallel_residual=true", "model.norm_position=post"],
        "model.parallel_residual",
    ),
    "every_window_has_a_layer": (["model.num_layers=2", "model.window=[8, 8, null]"], "model.window"),
    "sinks_stand_before_a_window": (["model.sink_tokens=4"], "model.sink_tokens"),
    "batch_divides_evenly": (
        ["trainer.devices=2", "trainer.num_nodes=2", "data.batch_size=6"],
        "data.batch_size",
    ),
    "devices_are_some": (["trainer.devices=0"], "trainer.devices"),
    "task_fits_data": (["task=max_index", "evaluate.protocols=[accuracy]"], "task"),
    "task_fits_kind": (["task=masked_language_modelling"], "task"),
    "protocols_fit": (["evaluate.protocols=[accuracy]"], "evaluate.protocols.0"),
    "longest_length_is_scored": (["evaluate.max_tokens=511"], "evaluate.max_tokens"),
    "data_fit_lengths": (["data.name=copy", "evaluate.lengths=[2]"], "evaluate.lengths.0"),
    "fused_optimizer_gets_its_gradients": (
        ["optimizer.fused=true", "trainer.precision=16-mixed"],
        "optimizer.fused",
    ),
    "kernel_runs_on_device": (["model.kernel=flex", "trainer.accelerator=cpu"], "model.kernel"),
}


def test_a_broken_rule_is_reported_at_its_key(good, problems):
    for rule, (settings, key) in BROKEN.items():
        (line,) = problems(resolve, good, settings)
        assert f": {key}: " in f": {line}", rule


OF_CLASSES = (
    (["evaluate.questions=[needle, copy]"], "evaluate.questions.1"),
    (["evaluate.questions=[{name: needle, digits: many}]"], "evaluate.questions.0.digits"),
    (["evaluate.questions={name: needle, digts: 3}"], "evaluate.questions"),
    (["data.name=mix", "data.of=[sample, smple]"], "data.of.1"),
    (["data.name=mix", "data.of=[sample]"], "data.of"),
    (["data.lengths=[64, 48]"], "data.lengths"),
    (["data.name=mix", "data.of=[sample, wikitext-2]", "data.weights=[1]"], "data.weights"),
    (["evaluate.protocols=[sliding]", "evaluate.lengths=[8, 64]", "evaluate.stride=9"], "evaluate.stride"),
)


def test_a_rule_of_a_protocol_or_a_dataset_is_reported_at_its_key(good, problems):
    for settings, key in OF_CLASSES:
        (line,) = problems(resolve, good, settings)
        assert f": {key}: " in f": {line}", line


def test_no_protocol_or_dataset_is_named_in_the_recipe():
    names = {*registry.protocols.names(), *registry.datasets.names()} - {"text"}  # the kind of data, too
    for file in (Path(zoo.__file__).parent / "recipe").glob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        assert not names & {one.value for one in nodes if isinstance(one, ast.Constant)}, file


def test_an_optimizer_takes_the_rate(forgetful_registry, good, problems):
    @zoo.register.optimizer("rateless")
    class Rateless(torch.optim.SGD):
        """Has a rate of its own."""

        def __init__(self, params, *, speed: float = 0.1):
            super().__init__(params, lr=speed)

    (line,) = problems(resolve, good, ["optimizer.name=rateless"])
    assert "optimizer.name: optimizer 'rateless'" in line and "has no lr" in line


def test_settings_that_break_no_rule_are_accepted(good, problems):
    devices = [[f"trainer.devices={value}"] for value in ("auto", "-1", "[0, 1]", "'2'")]  # counted later
    for settings in (*devices, ["model.window=16", "model.num_kv_heads=2"]):
        assert problems(resolve, good, settings) == [], settings


def test_the_task_follows_from_data_and_kind(good):
    tasks = {
        ("decoder", "text"): "language_modelling",
        ("encoder", "sample"): "masked_language_modelling",
        ("encoder", "max_index"): "max_index",
        ("decoder", "max_index"): "max_index",
        ("decoder", "copy"): "answering",
    }
    found = {key: resolve(good, [f"model.kind={key[0]}", f"data.name={key[1]}"]).task for key in tasks}
    assert {key: task.name for key, task in found.items()} == tasks
    assert found["encoder", "sample"].mask_fraction == 0.15
