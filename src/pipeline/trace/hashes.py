"""Chained, salted hashes of blocks: equal hash, equal content and equal prefix, and no way back to the content."""

from __future__ import annotations

from array import array
from hashlib import blake2b

DIGEST_BYTES = 8


class BlockHasher:
    """Hashes of blocks keyed with a salt; only who knows it can try out contents."""

    def __init__(self, salt: str) -> None:
        self._key = blake2b(salt.encode("utf-8", "surrogatepass")).digest()

    def digest(self, parent: bytes, content: bytes) -> bytes:
        """Hash of a block behind the one whose hash is `parent` (empty: none)."""
        return blake2b(parent + content, digest_size=DIGEST_BYTES, key=self._key).digest()

    def chain(self, tokens: array[int], block_tokens: int, root: str) -> array[int]:
        """Ids of the full blocks of a sequence of tokens; root: what else their KV values depend on (an adapter)."""
        ids, parent = array("Q"), self.digest(b"", root.encode("utf-8", "surrogatepass"))
        for start in range(0, len(tokens) - len(tokens) % block_tokens, block_tokens):
            parent = self.digest(parent, tokens[start : start + block_tokens].tobytes())
            ids.append(id_of(parent))
        return ids


def id_of(digest: bytes) -> int:
    """Block id that a hash stands for: 0 to 2^64 - 1."""
    return int.from_bytes(digest, "little")
