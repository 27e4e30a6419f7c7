"""The descriptor pool of this package alone: other stubs of the same files, in the default pool, do no harm to these."""

from google.protobuf import any_pb2, descriptor_pool, duration_pb2, struct_pb2

POOL = descriptor_pool.DescriptorPool()
for _known in (any_pb2, duration_pb2, struct_pb2):
    POOL.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)
