"""Publishes a DownloadTask to NATS JetStream with nats-py: what a producer in any language does.

    python examples/jobs/produce_nats.py nats://127.0.0.1:4222 http://127.0.0.1:8000/cat.jpg

It needs the packages nats-py and protobuf, and jobs_pb2.py, which `protoc --python_out=. proto/jobs.proto` makes:
nothing of Slipstream. The stream is made by `MESSAGE_BUS_DRIVER=nats slipstream jobs provision`, and a worker
(`MESSAGE_BUS_DRIVER=nats slipstream jobs worker`) does the rest.
"""

import asyncio
import sys
import uuid

import nats

from slipstream.jobs.jobs_pb2 import DownloadTask  # or from where you have put yours

SUBJECT = "fetchbox.jobs.tasks"  # JOBS_NAMESPACE is what it starts with


async def publish(server: str, task: DownloadTask) -> str:
    connection = await nats.connect(server)
    try:
        # js.publish waits until the stream has it; a plain publish may lose it without a word.
        stored = await connection.jetstream().publish(
            SUBJECT,
            task.SerializeToString(),
            headers={
                # A repeat within the stream's duplicate window, two minutes, is stored once.
                "Nats-Msg-Id": f"{task.job_id}/{task.resource_id}",
                # The key of the message: all messages of a job have its id.
                "Slipstream-Key": task.job_id,
                # For whoever looks at the stream; workers read the message itself.
                "contentType": "application/x-protobuf",
                "messageType": "fetchbox.jobs.DownloadTask",
            },
        )
    finally:
        await connection.close()
    return f"{stored.stream}/{stored.seq}"


if __name__ == "__main__":
    server, url = sys.argv[1:]
    # The ids are yours to choose; the same two ids are the same resource, which counts once.
    task = DownloadTask(job_id=str(uuid.uuid4()), job_type="photos", resource_id="cat", url=url)
    task.headers.add(name="accept", value="image/*")  # names in lower case
    print(f"{task.job_id} is at {asyncio.run(publish(server, task))}")
