"""One mutator for every format: bytes in, damaged bytes out; the same seed, the same damage."""

import re
import struct
from random import Random

# What counts and offsets become: nothing, all there is, just beyond a type, more than any memory.
_SIZES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 10**6, 10**9, 2**31 - 1, 2**31, 2**32 - 1, 2**33)
_SIZES += (2**40, 2**62, 2**63 - 1, 2**64 - 1)
_TEXTS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    b"nan",
    b"-1",
    b"1e999",
    b'"',
    b"\r",
)
_TEXTS += (b"{", b"}" * 50, b"[" * 2000, b"9" * 5000, b",", b"\n", b"\n\n", b",,", b"\t", b"null")


def _flip(content: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        at = _place(content, random)
        content[at] ^= 1 << random.randrange(8)


def _overwrite(content: bytearray, random: Random) -> None:
    at = _place(content, random)
    size = random.choice((1, 2, 4, 8, 32))
    content[at : at + size] = random.choice(
        (bytes(size), b"\xff" * size, random.randbytes(size), b"\x80" * size)
    )


def _inflate(content: bytearray, random: Random) -> None:
    """A number in the bytes becomes another: a size field, if there is one there."""
    width = random.choice((2, 4, 4, 8, 8))
    at = _place(content, random)
    if random.random() < 0.7:
        at -= at % width
    value = random.choice((*_SIZES, len(content), len(content) + 1, 2 * len(content)))
    order = random.choice("<<<>")
    packed = struct.pack(f"{order}Q", value & (2**64 - 1))
    content[at : at + width] = packed[:width] if order == "<" else packed[-width:]


def _number(content: bytearray, random: Random) -> None:
    """A number in digits becomes another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(content[: 1 << 16])))
    if found:
        spot = random.choice(found[:40] if random.random() < 0.5 else found)
        value = random.choice((*_SIZES, -1, -(2**31), 0.5))
        content[spot.start() : spot.end()] = str(value).encode()


def _word(content: bytearray, random: Random) -> None:
    """A word becomes another one, or something that is none."""
    found = list(re.finditer(rb"[A-Za-z_]{2,}|<[a-zA-Z]\d+", bytes(content[: 1 << 16])))
    if found:
        spot, other = random.choice(found), random.choice(found)
        content[spot.start() : spot.end()] = random.choice((other.group(), *_TEXTS))


def _cut(content: bytearray, random: Random) -> None:
    del content[_place(content, random) :]


def _drop(content: bytearray, random: Random) -> None:
    at = _place(content, random)
    del content[at : at + random.choice((1, 2, 8, 100, 1000))]


def _repeat(content: bytearray, random: Random) -> None:
    """A chunk comes again, there or elsewhere, once or many times."""
    at, size = _place(content, random), random.choice((1, 8, 64, 512))
    chunk = content[at : at + size] * random.choice((1, 1, 2, 50))
    to = random.choice((at, _place(content, random)))
    content[to:to] = chunk


def _insert(content: bytearray, random: Random) -> None:
    at = _place(content, random)
    content[at:at] = random.choice((*_TEXTS, random.randbytes(16)))


_CHANGES = (
    _flip,
    _flip,
    _overwrite,
    _inflate,
    _inflate,
    _number,
    _word,
    _cut,
    _drop,
    _repeat,
    _insert,
)


def _place(content: bytearray, random: Random) -> int:
    """Where to change something: headers and footers as often as all that is between them."""
    if not content:
        return 0
    near = min(len(content), random.choice((16, 64, 512)))
    return random.choice(
        (random.randrange(len(content)), random.randrange(near), -1 - random.randrange(near))
    ) % len(content)


def mutate(content: bytes, others: list[bytes], random: Random) -> bytes:
    """A file like this one with a few changes; others: files to take a part of."""
    changed = bytearray(content)
    if random.random() < 0.1:
        other = random.choice(others)
        at = _place(changed, random)
        changed[at:] = other[
            min(len(other), random.choice((at, random.randrange(len(other) + 1)))) :
        ]
    else:
        random.choice(_CHANGES)(changed, random)
    while random.random() < 0.35:
        if changed:
            random.choice(_CHANGES)(changed, random)
    return bytes(changed)


def edit_json(value: object, random: Random) -> object:
    """A nest of dicts and lists with one part left out, doubled or of another kind."""
    odd = (
        None,
        True,
        -1,
        0,
        1.5,
        2**31,
        10**12,
        1e308,
        "",
        "x",
        [],
        {},
        [0] * 3,
        {"a": 1},
        "\ud800",
    )
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(sorted(value))
        kept = dict(value)
        if random.random() < 0.1:
            del kept[key]
        else:
            kept[key] = edit_json(value[key], random)
        return kept
    if isinstance(value, list) and value and random.random() < 0.8:
        at, kept = random.randrange(len(value)), list(value)
        action = random.randrange(4)
        if action == 0:
            del kept[at]
        elif action == 1:
            kept.insert(at, kept[at])
        else:
            kept[at] = edit_json(kept[at], random)
        return kept
    if isinstance(value, int | float) and not isinstance(value, bool) and random.random() < 0.5:
        return random.choice((value + 1, -value, value * 10, value * 1000, value / 3))
    return random.choice(odd)
