"""Random changes to bytes that were right: what the fuzz tests of the wire feed."""

import random

WILD_BYTES = (0, 1, 2, 0x0A, 0x22, 0x2C, 0x3A, 0x5B, 0x5C, 0x7B, 0x7D, 0x7F, 0x80, 0xC3, 0xFF)


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """Return the bytes with one to three random changes."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.choice(WILD_BYTES)])
            case 1 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at : at + 4] = rng.choice((-1, 0, 1, 255, 65536, 2**31 - 1)).to_bytes(
                    4, "big", signed=True
                )
            case 3:
                del data[at : at + rng.randrange(9)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(9))
            case _:
                data[at:at] = data[at : at + rng.randrange(20)]
    return bytes(data)
