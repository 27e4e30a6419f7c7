"""The descriptor pool of this package alone: other stubs of the same files, in the default pool, do no harm to these."""

from google.protobuf import any_pb2, descriptor_pool, duration_pb2, struct_pb2
from google.protobuf.internal import builder

POOL = descriptor_pool.DescriptorPool()
for _known in (any_pb2, duration_pb2, struct_pb2):
    _file = POOL.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)
    # Older protobuf makes no class by itself for a message of another file.
    _made: dict[str, object] = {}
    builder.BuildMessageAndEnumDescriptors(_file, _made)
    builder.BuildTopDescriptorsAndMessages(_file, __name__, _made)
