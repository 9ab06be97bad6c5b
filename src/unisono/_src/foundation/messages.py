"""Classes of Protocol Buffers messages, made from a description of their fields.

The package ``protobuf`` reads and writes the bytes; it is imported on first use. Each
call has a descriptor pool of its own, so its names clash with no others in the process.
"""

from __future__ import annotations

from typing import Any


def make_classes(package: str = "unisono", /, **messages: str) -> dict[str, Any]:
    r"""Returns the classes of messages, by name.

    Args:
        package: the package of the messages, a part of their full names.
        **messages: the fields of each message, much as a ``.proto`` file writes them,
            with ``;`` between two. A field may have one of the other messages as its
            type. Repeated numbers are packed. ``map M x = 1`` is a map from text to
            messages, and ``oneof kind M x = 1`` a field of the message's one ``oneof``.

    >>> made = make_classes(
    ...     Line="repeated Point ends = 1", Point="repeated int64 at = 1"
    ... )
    >>> made["Line"](ends=[{"at": [3, 4]}]).SerializeToString()
    b'\n\x04\n\x02\x03\x04'
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for *label, kind, name, _, number in map(str.split, fields.split(";")):
            field = described.field.add(name=name, number=int(number))
            if label[0] == "map":
                _describe_map(described, field, f".{package}.{kind}")
                continue
            if label[0] == "oneof":
                field.oneof_index = 0
                del described.oneof_decl[:]
                described.oneof_decl.add(name=label[1])
            is_repeated = label[0] == "repeated"
            field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            if kind in messages:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
                field.options.packed = is_repeated and kind not in ("bytes", "string")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{name}")
        )
        for name in messages
    }


def _describe_map(message: Any, field: Any, value: str) -> None:
    """Makes a field a map from text, which is a repeated message of key and value."""
    entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING)
    entry.field.add(name="value", number=2, type=field.TYPE_MESSAGE, type_name=value)
    for part in entry.field:
        part.label = field.LABEL_OPTIONAL
    above = value.rpartition(".")[0]
    field.label, field.type = field.LABEL_REPEATED, field.TYPE_MESSAGE
    field.type_name = f"{above}.{message.name}.{entry.name}"
