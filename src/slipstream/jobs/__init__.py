"""Download jobs: a manifest comes in, and every resource in it is stored with its checksum, or is a dead letter.

    async with serving(worker=True) as service:
        job = await service.submit("photos", {"manifest_version": "v1", "resources": [{"id": "a", "url": "https://…"}]})

The ingress stores the manifest and publishes a task for each resource; workers, any number of them, download and store;
the operator's ledger adds up what became of them. All of them talk over four streams of protobuf messages
(`proto/jobs.proto`) on the bus, and see of each other nothing else. Jobs stand on the bus and on an object store; they
touch no broker, and no disk but those of the ledger and of downloads that are under way.
"""
