"""Messages between rooms, and their form as blocks.

Each kind of message is a class. Its fields are a small header and tables. Within one process a
message is passed as it is; where bytes travel, it is a block (`encoding`): the header in msgpack,
with the message's kind and format, and the arrays of the tables. What is in the block follows from
the fields of the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar, get_args, get_origin

import msgspec

from streamydb.errors import InvariantViolation, RecordError
from streamydb.frames.encoding import Part, StoredArrays, narrowed, pack_narrowed, peel
from streamydb.frames.plans import PlanName
from streamydb.frames.table import Array, ColumnTable
from streamydb.records.formats import UNREADABLE

FORMAT: Final = 2
"""Version of every block and state blob; another one is refused."""


class Message(msgspec.Struct, frozen=True, eq=False):
    """A message; its class says what it is, who sends it, and who gets it.

    A header field that has its default value is left out of the block. A `PlanName` is five fields
    there, and a list of structs is bytes of msgpack. The arrays of a table have the name of its
    field before theirs, if the message has several tables.

    Attributes:
        KIND: the name of the kind in blocks.
        LAST: the header fields that stand behind kind and format.
    """

    KIND: ClassVar[str]
    LAST: ClassVar[tuple[str, ...]] = ()

    def block(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> list[Part]:
        """The message as bytes in pieces, which are still to be joined."""
        return pack_narrowed([narrowed(self.arrays())], **self.header())

    def header(self) -> dict[str, Any]:
        header: dict[str, Any] = {}
        last: dict[str, Any] = {}
        for field in _fields(type(self)).header:
            value = getattr(self, field.name)
            if field.is_plan:
                header |= value.fields()
            elif value != field.default:
                into = last if field.name in self.LAST else header
                into[field.name] = msgspec.msgpack.encode(value) if field.listed else value
        return {**header, "kind": self.KIND, "format": FORMAT, **last}

    def arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for field in _fields(type(self)).tables:
            table = getattr(self, field.name)
            if table is not None:
                arrays |= table.flatten(field.prefix)
        return arrays

    @classmethod
    def opened(cls, header: Mapping[str, Any], stored: StoredArrays) -> Self:
        """The message of a block of this kind.
        Raises RecordError: the block is not as `block` makes it.
        """
        fields, values = _fields(cls), dict[str, Any]()
        try:
            head = msgspec.convert(header, fields.head)
            for field in fields.header:
                if field.is_plan:
                    values[field.name] = PlanName(*(getattr(head, name) for name in _PLAN))
                else:
                    value = getattr(head, field.name)
                    values[field.name] = field.listed.decode(value) if field.listed else value
        except UNREADABLE as error:
            raise RecordError(f"a block of kind {cls.KIND} cannot be read: {error}") from error
        arrays = stored.arrays() if fields.tables else {}
        for table in fields.tables:
            is_there = not table.optional or any(path.startswith(table.prefix) for path in arrays)
            values[table.name] = table.rows.unflatten(arrays, table.prefix) if is_there else None
        return cls(**values)


_PLAN: Final[dict[str, tuple[Any, ...]]] = {
    "plan": (int,),
    "life": (str,),
    "first": (int,),
    "last": (int,),
    "layout": (str,),
}
"""The fields of a `PlanName` in a header, and their types."""


class _HeaderField(NamedTuple):
    """A field of a header; ``listed``: decodes its bytes, if it is a list of structs."""

    name: str
    default: object
    listed: msgspec.msgpack.Decoder[Any] | None
    is_plan: bool


class _TableField(NamedTuple):
    """A table of a message; ``prefix``: of its arrays."""

    name: str
    prefix: str
    rows: type[ColumnTable]
    optional: bool


class _Fields(NamedTuple):
    """The fields of a message; ``head``: what its header must be."""

    header: list[_HeaderField]
    tables: list[_TableField]
    head: type[msgspec.Struct]


@cache
def _fields(message: type[Message]) -> _Fields:
    header: list[_HeaderField] = []
    tables: list[_TableField] = []
    head: list[Any] = []
    for each in msgspec.structs.fields(message):
        args, default = get_args(each.type), each.default
        table = next((kind for kind in (*args, each.type) if _is_table(kind)), None)
        if table is not None:
            tables.append(_TableField(each.name, f"{each.name}.", table, type(None) in args))
            continue
        is_plan = each.type is PlanName
        listed = get_origin(each.type) is list and issubclass(args[0], msgspec.Struct)
        decoder = msgspec.msgpack.Decoder(each.type) if listed else None
        header.append(_HeaderField(each.name, default, decoder, is_plan))
        kind: Any = bytes if listed else each.type
        if is_plan:
            head += [(name, *kinds) for name, kinds in _PLAN.items()]
        else:
            head.append((each.name, kind) if each.required else (each.name, kind, default))
    if len(tables) == 1:
        tables = [tables[0]._replace(prefix="")]
    return _Fields(header, tables, msgspec.defstruct(message.__name__, head, kw_only=True))


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, ColumnTable)


M = TypeVar("M", bound=Message)


class BlockReader(Generic[M]):
    """Reads blocks that are of one of some kinds of messages."""

    def __init__(self, *kinds: type[M]) -> None:
        self._kinds = {kind.KIND: kind for kind in kinds}

    def read(self, block: bytes) -> M:
        """Return the message of a block.
        Raises InvariantViolation: the block is of another kind, or of another release's format.
        Raises RecordError: it is damaged.
        """
        header, stored = peel(block)
        require_format(header)
        message = self.opened(header, stored)
        if message is None:
            raise InvariantViolation(f"a block of kind {header.get('kind')!r} came where none does")
        return message

    def opened(self, header: Mapping[str, Any], stored: StoredArrays) -> M | None:
        """Return the message of a block whose header is decoded; None if it is of another kind.
        Raises RecordError: the block is damaged.
        """
        kind = self._kinds.get(header.get("kind", ""))
        return None if kind is None else kind.opened(header, stored)

    def each(self, blocks: Iterable[bytes]) -> Iterator[M]:
        """Yield the messages of some blocks; raises as `read`."""
        return map(self.read, blocks)


def require_format(header: Mapping[str, Any]) -> None:
    """Refuse a block of a format that this release does not read.
    Raises InvariantViolation: its header names such a one.
    """
    if header.get("format") != FORMAT:
        what = f"a block has format {header.get('format')}, this release reads {FORMAT}"
        raise InvariantViolation(f"{what}; run the release that wrote it, or rebuild from the log")
