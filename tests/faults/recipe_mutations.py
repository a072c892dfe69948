"""Random faults in recipes: in their bytes, their trees, the texts of `--set`."""

import copy
import random

import yaml

ODD_TEXTS = [
    "", " ", "~", "null", "true", "on", "0x10", "1_000", "6e-4", "1e999", ".inf", "-.inf", ".nan", "=",
    "<<", "*a",
    "&a", "!!int x", "!x", "a: b", "- a", "#", "a\nb", "\t", "\x1b[2J", "\x07", "\x85", "\u2028", "\ud800",
    "\ufeff", "\u202ebackwards", "\U0001f600", "é", "../x", "/abs", "C:\\x", "x" * 300, "x" * 5000,
    "%s{}$(id)",
    "__class__", "model", "decoder", "alibi", "rope", "none", "learned", "wikitext-2", "max_index", "copy",
    "cosine", "0", "-1", "auto", "[0]", "'", '"', "\\", "|", ">", "?", "a\0b",
]  # fmt: skip
ODD_NUMBERS = [
    0, -1, 1, 2, 3, 7, 64, 2**31, 2**32, 2**53, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.0, -0.0, 0.5,
    1.0, 1.5,
    1e-320, 1e308, float("inf"), float("-inf"), float("nan"), True, False, None,
]  # fmt: skip
RAW_VALUES = [
    "!!python/object/apply:os.system ['touch ran']", "!!python/name:os.system", "!!binary aGk=",
    "!!set {a, b}", "!!timestamp 2001-01-01", "2001-01-01", "&a [*a]", "{<<: {a: 1}}", "!!map [a]",
    "!!seq {a: 1}", "!!str 7", "!!float 7", "!!null x",
    "!<tag:yaml.org,2002:python/object/new:os.system> [x]",
    "0x" + "f" * 6000, "9" * 5000, "1e" + "9" * 50, "[" * 40 + "]" * 40, "{a: " * 40 + "1" + "}" * 40,
    '"\\uD800"', '"\\U00110000"', '"\\UFFFFFFFF"', '"\\x00"', '"\\e[31m"', "| \n", ">-", "*none", "? a",
    "@x", "`x`", "%x", "[1, 2", "{a: 1", "'x", '"x', "- - -", "a: b: c", "0o777", "0b1", "1:30", "---",
    "...", "--- a", "[[], {}]", "[a, [b, [c]]]",
]  # fmt: skip
ENCODINGS = [
    "alibi", "rope", "t5", {"name": "rope", "scaling": "yarn", "factor": 4}, ["rope", "alibi"], ["alibi"],
    {"name": "randomized", "of": "rope", "max_position": 64},
    {"name": "interleave", "pattern": ["rope", "none", {"name": "randomized", "of": "learned"}]},
    {"name": "dape", "of": {"name": "dape", "of": "alibi"}}, {"name": "shape", "of": ["rope", "alibi"]},
    [["rope"]], {"of": "rope"}, {"name": ["rope"]}, {"name": {"name": "rope"}},
]  # fmt: skip
LINES = [
    b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"\t", b"\r", b"---\n", b"...\n", b"%YAML 9.9\n---\n", b"&a ",
    b"*a ", b"!!",
    b"<<: *a\n", b"? ", b": ", b"- ", b"[", b"]", b"{", b"}", b"#", b"|", b">", b'"', b"'", b"\xc3\x28",
    b"\xed\xa0\x80",
    b"model: {}\n", b"name: x\n", b"base: b.yaml\n", b"\n\n", b"%TAG ! tag:x,1:\n",
]  # fmt: skip


def nested(depth, rng):
    value = copy.deepcopy(rng.choice(ENCODINGS))  # the next mutation changes it in its turn
    for _ in range(depth):
        wrapper = rng.choice(["randomized", "shape", "cape", "dape", "drope", "interleave", "a"])
        value = {"name": wrapper, "pattern" if wrapper == "interleave" else "of": value}
    return value


def odd_value(rng):
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice(ODD_TEXTS)
    if kind <= 2:
        return rng.choice(ODD_NUMBERS)
    if kind == 3:
        return [odd_value(rng) for _ in range(rng.randrange(4))]
    if kind == 4:
        return {rng.choice(ODD_TEXTS): odd_value(rng) for _ in range(rng.randrange(3))}
    if kind == 5:
        return nested(rng.choice([0, 1, 2, 5, 15, 40]), rng)
    return rng.choice(["alibi", "decoder", 16, 2])


def likely_value(value, path, rng):
    """Another value that may be right in its place."""
    if path[-1] == "encoding":
        return copy.deepcopy(rng.choice([*ENCODINGS[:9], nested(rng.randrange(3), rng)]))
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([value + 1, 2 * value, value // 2, float(value % 2**64), value % 2**40])
        case float():
            return rng.choice([value / 2, 2 * value, 1 - value, value // 1])
    return value


def locations(values, path=()):
    """The paths of everything in a tree."""
    yield path
    pairs = (
        values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    )
    for key, value in pairs:
        yield from locations(value, (*path, key))


def parent(values, path):
    for part in path[:-1]:
        values = values[part]
    return values


def mutated_tree(values, rng):
    """Some keys of a tree replaced, swapped, dropped, renamed or added."""
    values = copy.deepcopy(values)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        paths = [path for path in locations(values) if path]
        if not paths:
            return values
        path, other = rng.choice(paths), rng.choice(paths)
        owner = parent(values, path)
        match rng.randrange(6):
            case 0:
                owner[path[-1]] = odd_value(rng)
            case 1 | 2:
                owner[path[-1]] = likely_value(owner[path[-1]], path, rng)
            case 3:
                value = copy.deepcopy(parent(values, other)[other[-1]])
                owner[path[-1]] = value
            case 4:
                del owner[path[-1]]
            case 5:
                below = owner[path[-1]]
                if isinstance(below, dict):
                    below[rng.choice([*ODD_TEXTS, "encoding", "name", "base", "plugins"])] = odd_value(rng)
                elif isinstance(owner, dict):
                    owner[str(path[-1]) + rng.choice("sx_ ")] = owner.pop(path[-1])
    return values


class Dumper(yaml.SafeDumper):
    """One list that stands in two locations is an alias."""


def as_bytes(values, rng):
    try:
        text = yaml.dump(
            values, Dumper=Dumper, sort_keys=False, allow_unicode=rng.random() < 0.5,
            default_flow_style=rng.choice([None, True, False]),
        )  # fmt: skip
    except (ValueError, yaml.YAMLError):  # an integer that Python does not write
        text = "a: 1\n"
    return text.encode("utf-8", errors="surrogatepass")


def mutated_bytes(raw, rng):
    """Some bytes of a file changed, doubled, dropped, or a value replaced by a piece of YAML."""
    raw = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(6):
            case 0 if at < len(raw):
                raw[at] ^= 1 << rng.randrange(8)
            case 1:
                raw[at:at] = rng.choice(LINES)
            case 2:
                del raw[at : at + rng.choice([1, 2, 10, 100])]
            case 3:
                raw[at:at] = raw[at : at + rng.choice([5, 50, 500])]
            case _:
                lines = bytes(raw).split(b"\n")
                row = rng.randrange(len(lines))
                key, colon, _ = lines[row].partition(b": ")
                piece = rng.choice([*RAW_VALUES, *map(str, ODD_TEXTS[:20])])
                lines[row] = key + colon + piece.encode("utf-8", errors="surrogatepass")
                raw = bytearray(b"\n".join(lines))
    match rng.randrange(40):
        case 0:
            return bytes(raw).decode("utf-8", errors="replace").encode("utf-16")
        case 1:
            return b"\xef\xbb\xbf" + bytes(raw)
        case 2:
            return bytes(raw).replace(b"\n", b"\r\n")
    return bytes(raw)


def odd_set(paths, rng):
    """A `key=value` of the command line."""
    key = ".".join(map(str, rng.choice(paths))) or "model"
    if rng.random() < 0.2:
        key += rng.choice([".x", ".0", "..", ".name", ".of.of.of", "", ".9" * 50, ".-1", ".²"])
    value = rng.choice([rng.choice(RAW_VALUES), rng.choice(ODD_TEXTS), repr(rng.choice(ODD_NUMBERS[:14]))])
    return rng.choice([f"{key}={value}"] * 9 + [key, f"={value}", value])


def case(seed, files):
    """The bytes of a file, and the values of `--set`.

    Args:
        files: the bytes of each recipe, by name.
    """
    rng = random.Random(seed)
    name = rng.choice(sorted(files))
    values = yaml.safe_load(files[name])
    sets = []
    if rng.random() < 0.3:
        paths = [path for path in locations(values) if path] + [
            ("base",),
            ("plugins",),
            ("trainer", "profiler"),
        ]
        sets = [odd_set(paths, rng) for _ in range(rng.choice([1, 1, 2, 3]))]
        if rng.random() < 0.5:
            return name, files[name], sets
    if rng.random() < 0.5:
        return name, mutated_bytes(files[name], rng), sets
    return name, as_bytes(mutated_tree(values, rng), rng), sets
