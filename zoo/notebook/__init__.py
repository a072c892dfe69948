"""The zoo from Python and from a notebook: `zoo.open`, `zoo.fit`, `zoo.evaluate` and `zoo.compare`."""
