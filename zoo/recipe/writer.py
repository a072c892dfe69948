"""A recipe, and a value of one, as YAML that is read back to the same."""

from __future__ import annotations

import math
from typing import Any

import yaml

from zoo.recipe.schema import Recipe
from zoo.recipe.yaml_file import RESOLVERS


def dump(recipe: Recipe) -> str:
    """The resolved recipe as YAML that `read_recipe` reads back to the same recipe."""
    return yaml.dump(recipe.as_dict(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def spell(value: Any) -> str:
    """A plain value as one line of YAML: what `--set key=` takes to mean just that."""
    text = yaml.dump(
        value,
        Dumper=_LineDumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
    )
    return text.removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Plain YAML that quotes whatever either of the two YAMLs would take for something other than text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own registry)
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, []), *RESOLVERS.get(first, [])]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *RESOLVERS}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _list(dumper: _Dumper, data: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict | list) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_Dumper.add_representer(list, _list)


class _LineDumper(_Dumper):
    """All on one line."""


_LineDumper.add_representer(list, yaml.SafeDumper.represent_list)
