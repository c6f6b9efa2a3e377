"""Downloads one resource safely: from public addresses only, within bounds of size, time and rate, and with its digest.

    async with Fetcher(settings) as fetcher:
        with Spool(settings, checksum) as spool:
            fetched = await fetcher.fetch("https://…", headers, spool)

A worker calls it, an attempt at a time; how often, and when again, is the worker's to decide: whatever goes wrong is a
`TaskFailed` that says whether trying again makes sense. It touches the network, and the disk only for the bytes of a
download that is under way.
"""
