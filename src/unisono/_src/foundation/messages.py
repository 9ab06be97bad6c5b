"""Classes of Protocol Buffers messages, made from a description of their fields.

The package ``protobuf`` reads and writes the bytes; it is imported on first use. Each
call has a descriptor pool of its own, so its names clash with no others in the process.
"""

from __future__ import annotations

from typing import Any


def make_classes(**messages: str) -> dict[str, Any]:
    r"""Returns the classes of messages, by name.

    Args:
        **messages: the fields of each message as a ``.proto`` file writes them, with
            ``;`` between two. A field may have one of the other messages as its type.
            Repeated numbers are packed.

    >>> made = make_classes(
    ...     Line="repeated Point ends = 1", Point="repeated int64 at = 1"
    ... )
    >>> made["Line"](ends=[{"at": [3, 4]}]).SerializeToString()
    b'\n\x04\n\x02\x03\x04'
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="unisono.proto", package="unisono")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for label, kind, name, _, number in map(str.split, fields.split(";")):
            field = described.field.add(name=name, number=int(number))
            field.label = getattr(field, f"LABEL_{label.upper()}")
            if kind in messages:
                field.type, field.type_name = field.TYPE_MESSAGE, f".unisono.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
                field.options.packed = label == "repeated"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"unisono.{name}")
        )
        for name in messages
    }
