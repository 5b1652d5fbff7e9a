"""What runs when nothing is configured: real software, started and kept by Atlas itself.

    process    ports, locks, waiting, ending processes by id
    postgres   a PostgreSQL cluster on loopback
    clamd      a ClamAV daemon on a private socket, with test signatures

Nothing here knows a stage; the stages meet these servers through the same URL or address as a configured one.
"""
