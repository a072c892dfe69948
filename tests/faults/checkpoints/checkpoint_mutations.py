"""Ways in which a checkpoint goes wrong: the bytes of a whole one become those of a broken one.

`OF_BYTES` know nothing of the format: disks, networks and copies that break off. `OF_RECORDS` rewrite the zip
archive, with the right checksums. `OF_CONTENT` load it, change something, and save it as torch does.
"""

import io
import math
import pickletools
import zipfile
from random import Random

import torch


def records_of(raw):
    """The name and content of every record, in the order of the file."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return [(record.filename, archive.read(record)) for record in archive.infolist()]


def archive_of(records, packed=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packed) as archive:
        for name, content in records:
            archive.writestr(zipfile.ZipInfo(name), content, packed)
    return file.getvalue()


def content_of(raw):
    return torch.load(io.BytesIO(raw), weights_only=True)


def file_of(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


# Bytes


def _somewhere(raw, random):
    """A place in a part of the file that is drawn first: most of it is weights."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        record = random.choice(archive.infolist())
        pickled = archive.infolist()[0]
        directory = archive.start_dir
    part = random.choice(["anywhere", "header", "pickle", "data", "directory", "end"])
    begin, end = {
        "anywhere": (0, len(raw)),
        "header": (record.header_offset, record.header_offset + 64),
        "pickle": (64, 64 + pickled.file_size),
        "data": (record.header_offset + 64, record.header_offset + 64 + max(1, record.file_size)),
        "directory": (directory, len(raw)),
        "end": (len(raw) - 100, len(raw)),
    }[part]
    return random.randrange(begin, min(end, len(raw)))


def _size(random):
    return int(math.exp(random.uniform(0, 8)))


def flipped(raw, random):
    changed = bytearray(raw)
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        changed[_somewhere(raw, random)] ^= 1 << random.randrange(8)
    return bytes(changed)


def overwritten(raw, random):
    changed = bytearray(raw)
    changed[_somewhere(raw, random)] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    return bytes(changed)


def cut_short(raw, random):
    return raw[: random.choice([0, 1, 4, len(raw) // 2, len(raw) - 1, random.randrange(len(raw))])]


def cut_out(raw, random):
    at = _somewhere(raw, random)
    return raw[:at] + raw[at + _size(random) :]


def inserted(raw, random):
    at = random.choice([0, len(raw), _somewhere(raw, random)])
    return raw[:at] + random.randbytes(_size(random)) + raw[at:]


def zeroed(raw, random):
    at, size = _somewhere(raw, random), _size(random)
    return raw[:at] + bytes(len(raw[at : at + size])) + raw[at + size :]


def repeated(raw, random):
    """A block of the file stands where another should."""
    at, other, size = _somewhere(raw, random), random.randrange(len(raw)), _size(random)
    return (raw[:at] + raw[other : other + size] + raw[at + size :])[: len(raw)]


OF_BYTES = (flipped, overwritten, cut_short, cut_out, inserted, zeroed, repeated)


# Records


def swapped_records(raw, random):
    records = records_of(raw)
    one, two = random.sample(range(len(records)), 2)
    (name, content), (other, another) = records[one], records[two]
    records[one], records[two] = (name, another), (other, content)
    return archive_of(records)


def renamed_record(raw, random):
    records = records_of(raw)
    index = random.randrange(len(records))
    name, content = records[index]
    new = random.choice(["archive/data/999", "other/data.pkl", "archive/constants.pkl", "../../outside",
                         "archive/data/../data.pkl", name.upper(), "", "x" * 5000])  # fmt: skip
    records[index] = (new, content)
    return archive_of(records)


def doubled_record(raw, random):
    records = records_of(raw)
    name, content = random.choice(records)
    copied = (random.choice([name, name.upper()]), random.choice([content, content[::-1]]))
    records.insert(random.randrange(len(records) + 1), copied)
    return archive_of(records)


def missing_record(raw, random):
    records = records_of(raw)
    records.pop(random.randrange(len(records)))
    return archive_of(records)


def resized_record(raw, random):
    records = records_of(raw)
    index = random.randrange(len(records))
    name, content = records[index]
    less = content[: random.randrange(len(content) + 1)]
    records[index] = (name, random.choice([b"", less, content + random.randbytes(_size(random))]))
    return archive_of(records)


def packed_records(raw, random):
    return archive_of(records_of(raw), zipfile.ZIP_DEFLATED)


def changed_pickle(raw, random):
    """Bytes of the pickle are others, with the right checksum."""
    (name, content), *others = records_of(raw)
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 5])):
        changed[random.randrange(len(changed))] = random.choice(
            [random.randrange(256), 0xFF, ord("."), ord("R")]
        )
    return archive_of([(name, bytes(changed)), *others])


def larger_storage(raw, random):
    """The pickle says of a storage that it is longer than its record: who believes it reads past its end."""
    (name, content), *others = records_of(raw)
    steps = list(pickletools.genops(content))
    # The count, TUPLE, a place in the memo, BINPERSID. A count below 256 is one byte.
    places = [
        at
        for (count, _, at), (then, _, _) in zip(steps, steps[3:], strict=False)
        if count.name == "BININT1" and then.name == "BINPERSID"
    ]
    at = random.choice(places) + 1
    changed = content[:at] + bytes([random.randrange(content[at] + 1, 256)]) + content[at + 1 :]
    return archive_of([(name, changed), *others])


OF_RECORDS = (
    swapped_records, renamed_record, doubled_record, missing_record, resized_record, packed_records,
    changed_pickle, larger_storage,
)  # fmt: skip


# Content

ODD = (
    None, True, 0, -1, 1, 7, 2**31, 2**40, 2**63, 10**5000, 1.5, -0.0, math.nan, math.inf, "", "alibi",
    "nothing", "../../outside", "\x1b[31m", "x" * 200_000, [], {}, (), [1, 2], {"name": "alibi"}, {1: 2},
)  # fmt: skip


def _places(content):
    """Every container in a content, with each of its keys. Weights lie at fewer places than settings."""
    found, ahead = [], [content]
    while ahead:
        one = ahead.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        found += [(one, key) for key in keys]
        ahead += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return found


def _place(content, random):
    """A container and its key, from one of the parts of a checkpoint: each part is as likely as another."""
    part = random.choice([key for key in content if isinstance(content[key], dict | list)])
    return random.choice([(content, part), *_places(content[part]), *_places(content[part])])


def other_value(content, random):
    container, key = _place(content, random)
    container[key] = random.choice(ODD)


def other_top(content, random):
    content[random.choice(list(content))] = random.choice(ODD)


def other_number(content, random):
    numbers = [place for place in _places(content) if type(place[0][place[1]]) in (int, float)]
    container, key = random.choice(numbers)
    container[key] = random.choice([0, -1, container[key] + 1, container[key] * 2, 2**20, 2**62, 0.5])


def missing_key(content, random):
    container, key = _place(content, random)
    del container[key]


def renamed_key(content, random):
    container, key = _place(content, random)
    if isinstance(container, dict):
        container[random.choice(["other", 3, None, f"{key}x"])] = container.pop(key)


def added_key(content, random):
    container, _ = _place(content, random)
    if isinstance(container, dict):
        container[random.choice(["added", "model.more", 17])] = random.choice(ODD)
    else:
        container.append(random.choice(ODD))


def deep_value(content, random):
    container, key = _place(content, random)
    value = []
    for _ in range(random.choice([60, 150])):
        value = random.choice([[value], {"a": value}])
    container[key] = value


def laughing_value(content, random):
    """A list of ten lists of ten lists ...: a few bytes in the file, and endless in memory."""
    container, key = _place(content, random)
    value = ["ha"] * 10
    for _ in range(20):
        value = [value] * 10
    container[key] = value


def circular_value(content, random):
    container, key = _place(content, random)
    container[key] = container


def other_tensor(content, random):
    tensors = [place for place in _places(content) if isinstance(place[0][place[1]], torch.Tensor)]
    container, key = random.choice(tensors)
    tensor = container[key]
    flat = tensor.flatten()
    container[key] = random.choice([
        lambda: tensor.double(), lambda: tensor.half(), lambda: tensor.long(), lambda: tensor.bool(),
        lambda: tensor.to(torch.complex64), lambda: tensor * math.nan, lambda: tensor / 0, lambda: -tensor,
        lambda: flat[:-1].clone(), lambda: torch.cat([flat, flat]), lambda: tensor.unsqueeze(0),
        lambda: flat[:1].expand(10**12), lambda: flat[:1].expand(tensor.shape) if flat.numel() else tensor,
        lambda: tensor.t() if tensor.dim() == 2 else tensor, lambda: tensor.to_sparse(),
        lambda: tensor.tolist(),
        lambda: torch.nn.Parameter(tensor.clone()) if tensor.is_floating_point() else tensor,
    ])()  # fmt: skip


OF_CONTENT = (
    other_value, other_value, other_value, other_top, other_number, other_number, missing_key, missing_key,
    renamed_key, added_key, deep_value, laughing_value, circular_value, other_tensor, other_tensor,
)  # fmt: skip


def mutated(raw, seed, shares=(4, 2, 4)):
    """The bytes of a broken checkpoint, and how it was broken: "bytes", "records" or "content", and the name.

    The same for the same seed; `shares` says how often each of the three.
    """
    random = Random(seed)
    kind = random.choices(["bytes", "records", "content"], shares)[0]
    if kind == "content":
        change = random.choice(OF_CONTENT)
        content = content_of(raw)
        change(content, random)
        return file_of(content), kind, change.__name__
    change = random.choice(OF_BYTES if kind == "bytes" else OF_RECORDS)
    return change(raw, random), kind, change.__name__
