"""Publishes a DownloadTask to a Slipstream server over plain HTTP: what a producer in any language does.

    python examples/jobs/produce_v2.py http://127.0.0.1:8080 http://127.0.0.1:8000/cat.jpg

It needs the package protobuf, and jobs_pb2.py, which `protoc --python_out=. proto/jobs.proto` makes: nothing of
Slipstream. A worker (`MESSAGE_BUS_DRIVER=http slipstream jobs worker`) does the rest.
"""

import base64
import json
import sys
import urllib.request
import uuid

from slipstream.jobs.jobs_pb2 import DownloadTask  # or from where you have put yours

TOPIC = "fetchbox.jobs.tasks"  # JOBS_NAMESPACE is what it starts with


def publish(server: str, task: DownloadTask) -> str:
    message = {
        # All messages of a job have its id as key: they are in one partition, and keep their order.
        "key": task.job_id,
        # Protobuf is no text. In JSON bytes go as base64; with Content-Type: application/msgpack as they are.
        "value": base64.b64encode(task.SerializeToString()).decode(),
        "encoding": "base64",
        # For whoever looks at the stream; workers read the message itself.
        "attributes": {"contentType": "application/x-protobuf", "messageType": "fetchbox.jobs.DownloadTask"},
        # No answer says nothing about whether it was stored: with this key it may be sent again, and is stored once.
        "envelope": {"idempotency_key": f"{task.job_id}/{task.resource_id}"},
    }
    request = urllib.request.Request(
        f"{server}/v2/produce?topic={TOPIC}", json.dumps(message).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # 200: it is on disk. 429: wait, and send it again
        (placed,) = json.load(response)["messages"]
    return f"{TOPIC}/{placed['partition']}/{placed['offset']}"


if __name__ == "__main__":
    server, url = sys.argv[1:]
    # The ids are yours to choose; the same two ids are the same resource, which counts once.
    task = DownloadTask(job_id=str(uuid.uuid4()), job_type="photos", resource_id="cat", url=url)
    task.headers.add(name="accept", value="image/*")  # names in lower case
    print(f"{task.job_id} is at {publish(server, task)}")
