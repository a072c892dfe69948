"""`**more` in a constructor stands for the options of the class that it derives from."""

import importlib.util

from zoo.description import describe_class, read_descriptions

SOURCE = '''
import zoo


class Base(zoo.Encoding):
    """A base.

    Args:
        slope: of the base.
    """

    def __init__(self, size, *, slope: float = 1.0, far: int = 5):
        super().__init__(size)


@zoo.register("more")
class More(Base):
    """A class with an option more.

    Args:
        own: its own.
    """

    def __init__(self, size, *, own: bool = False, far: int = 7, **more):
        super().__init__(size, far=far, **more)


@zoo.register("most")
class Most(More):
    """One that has none of its own."""


@zoo.register("less")
class Less(More):
    """One that takes nothing of its base."""

    def __init__(self, size, *, alone: str = "a"):
        super().__init__(size)
'''


def test_read_and_described_alike(tmp_path, forgetful_registry):
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    read = {one.name: one for one in read_descriptions(file, "encoding", {}, {})}
    options = {name: {one.name: one.default for one in about.options} for name, about in read.items()}
    assert options["more"] == options["most"] == {"own": False, "far": 7, "slope": 1.0}
    assert options["less"] == {"alone": "a"}
    assert read["most"].help == {"slope": "of the base.", "own": "its own."}
    spec = importlib.util.spec_from_file_location("mine", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, about in read.items():
        assert describe_class("encoding", name, getattr(module, name.title()), {}).options == about.options
