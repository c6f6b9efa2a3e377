"""From the bytes of messages to columns, a batch at a time; what cannot be decoded comes back with the reason.

Runs in Spark's tasks. Touches nothing but Arrow: no file, no network, no Spark.
"""

from slipstream.pipeline.decode.decoded import Decoded
from slipstream.pipeline.decode.progress import decode_progress
from slipstream.pipeline.decode.protobuf import KINDS, decode_protobuf, schema_of

__all__ = ["KINDS", "Decoded", "decode_progress", "decode_protobuf", "schema_of"]
