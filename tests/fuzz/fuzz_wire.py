"""Feeds damaged requests of every API and version to the decoder, for a given time.

    python tests/fuzz/fuzz_wire.py --seconds 30 [--seed 1]

Only ProtocolError may come out, and no call may take longer than 50 ms (of this thread's CPU).
A failure prints the seed of its case and the bytes; `--case SEED` runs that one again.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.wire.samples import ALL_PAIRS, sample

from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire.api import decode_request_header
from kafkaesque.wire.codec import decode, encode_request_frame
from kafkaesque.wire.frames import FrameReader
from kafkaesque.wire.table import Request

CALL_MS_MAX = 50.0
MUTANTS_PER_SAMPLE = 50
INTERESTING = [
    struct.pack(">i", value) for value in (-1, -2, 0, 1, 0x7FFFFFFF, -0x80000000, 0x10000, 1000)
] + [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x00", b"\xff\xff", b"\x7f\xff"]

REQUEST_PAIRS = [(cls, v) for cls, v in ALL_PAIRS if issubclass(cls, Request)]


def mutate(body: bytes, chance: random.Random) -> bytearray:
    """One to four changes: flipped bytes, planted lengths, cuts, repeats, insertions."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0 and position < len(data):
            data[position] = chance.randrange(256)
        elif kind == 1:
            value = chance.choice(INTERESTING)
            data[position : position + len(value)] = value
        elif kind == 2:
            del data[position:]
        elif kind == 3:
            data[position:position] = data[position : position + chance.randrange(64)]
        elif kind == 4:
            data[position:position] = chance.randbytes(chance.randrange(1, 16))
        elif position < len(data):
            data[position] ^= 1 << chance.randrange(8)
    return data


def attempt(cls: type[Request], version: int, data: bytes | bytearray, body_position: int) -> str:
    """The error, or an empty string."""
    started_ns = time.thread_time_ns()
    try:
        decode(cls, memoryview(data), version, body_position)
        decode_request_header(memoryview(data))
    except ProtocolError:
        pass
    except Exception as error:  # noqa: BLE001 - any other exception is a finding
        return f"{type(error).__name__}: {error}"
    took_ms = (time.thread_time_ns() - started_ns) / 1e6
    return f"took {took_ms:.0f} ms" if took_ms > CALL_MS_MAX else ""


def run_frames(stream: bytes, chance: random.Random) -> str:
    """The same damage one layer down: a stream cut into frames, arriving in pieces."""
    reader = FrameReader(1 << 20)
    position = 0
    try:
        while position < len(stream):
            buffer = reader.get_buffer(-1)
            size = min(len(buffer), len(stream) - position, chance.randrange(1, 4096))
            buffer[:size] = stream[position : position + size]
            reader.buffer_updated(size)
            position += size
    except ProtocolError:
        pass
    except Exception as error:  # noqa: BLE001 - any other exception is a finding
        return f"frames: {type(error).__name__}: {error}"
    return ""


def run_case(seed: int) -> tuple[int, list[str]]:
    """Runs one sample and its mutants; returns how many ran and the errors."""
    chance = random.Random(seed)
    cls, version = chance.choice(REQUEST_PAIRS)
    message = sample(cls, version, chance)
    frame = b"".join(encode_request_frame(message, version, 1, "fuzz"))
    start = decode_request_header(memoryview(frame)[4:]).body_position
    failures = []
    if text := attempt(cls, version, frame[4:], start):
        failures.append(f"case {seed}: unharmed {cls.__name__} v{version}: {text}")
    for _ in range(MUTANTS_PER_SAMPLE):
        data = mutate(frame[4:], chance)
        if text := attempt(cls, version, data, start):
            failures.append(f"case {seed}: {cls.__name__} v{version}: {text}: {bytes(data).hex()}")
    if text := run_frames(bytes(mutate(frame * 3, chance)), chance):
        failures.append(f"case {seed}: {text}")
    return MUTANTS_PER_SAMPLE + 2, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the Kafka wire decoder.")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="first case; random if not given")
    parser.add_argument("--case", type=int, default=None, help="run this one case and stop")
    options = parser.parse_args()
    first = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    seed = first if options.case is None else options.case
    for (
        cls,
        version,
    ) in REQUEST_PAIRS:  # compiling a reader may take longer than the limit of a call
        decode_all = b"".join(
            encode_request_frame(sample(cls, version, random.Random(1)), version, 1, "")
        )
        attempt(cls, version, decode_all[4:], 0)
    executions = failed = 0
    started = time.monotonic()
    while True:
        ran, failures = run_case(seed)
        executions += ran
        failed += len(failures)
        for text in failures:
            print(text)
        seed += 1
        elapsed = time.monotonic() - started
        if elapsed >= options.seconds or failed >= 20 or options.case is not None:
            break
    print(f"wire: cases {first} to {seed - 1}, {executions / elapsed:,.0f} executions per second")
    print(f"{executions - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
