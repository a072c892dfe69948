"""Every generated task with an answer, with its usual options and with others."""

import pytest

from zoo import registry

TASKS = [
    name for name, about in registry.datasets.all().items() if about.cls.__module__ == "zoo.data.algorithmic"
]

OTHERS = {
    "copy": [{"num_symbols": 2}],
    "reverse": [{"num_symbols": 3}],
    "sort": [{"num_symbols": 5}],
    "addition": [
        {"order": "reversed"},
        {"order": "all_reversed", "index_hints": 7},
        {"index_hints": 40},
        {"order": "reversed", "index_hints": 40},
    ],
    "flip_flop": [
        {"ignore_probability": 0.1},
        {"ignore_probability": 0.98, "num_symbols": 5},
        {"ignore_probability": 1},
        {"ignore_probability": 0},
    ],
    "selective_copy": [{"num_data": 3, "num_symbols": 4}, {"num_data": 1}],
    "associative_recall": [{"num_pairs": 3, "num_keys": 3, "num_values": 4}, {"num_pairs": 1}],
    "dyck": [{"max_depth": 1}, {"num_kinds": 1, "max_depth": 3}, {"num_kinds": 5, "max_depth": 12}],
}
CASES = [(name, changes) for name in TASKS for changes in [{}, *OTHERS.get(name, [])]]


def described(case):
    name, changes = case
    return "-".join([name, *map(str, changes.values())])


def made(name, changes=None):
    return registry.datasets.load(name)(**(changes or {}))


@pytest.fixture(params=CASES, ids=described)
def case(request):
    """Name, task, and the options that differ from the usual ones."""
    name, changes = request.param
    return name, made(name, changes), changes


@pytest.fixture
def cases():
    """All cases: name, task, and the options that differ from the usual ones."""
    return [(name, made(name, changes), changes) for name, changes in CASES]


@pytest.fixture(params=TASKS)
def usual(request):
    """Name and task, with the usual options."""
    return request.param, made(request.param)


@pytest.fixture
def tasks():
    """Names and tasks, with the usual options."""
    return [(name, made(name)) for name in TASKS]


@pytest.fixture
def task_with():
    """A task by its name, with some options changed."""
    return made
