"""PostgreSQL: what is true. One module of typed queries per aggregate, each function taking an open connection.

    database   the pool, and errors turned into codes        migrate    sql/*.sql, once each, in order
    audit      the append-only log, and alerts               ledger     every mail ever listed; gives message keys
    mailboxes  a mailbox's pulse: read, failing, silent
    messages   bytes received and what was understood        tracking   the status of a message; the only writer of it
    claims     leases of messages being worked on            verdicts   scans, classifications, paid calls
    work       work records                                  tenants    client topology
    spawns     agents started, and their events              releases   deployments and QA reports
    outbox     recaps waiting to be sent                     registry   agents, scars, embeddings
    figures    what calibration counts                       overview   what the CLI lists
    phases     what the gate decided, and the phase          replays    a month judged again

Transactions belong to the caller: a function here never commits. No stage is imported from here.
"""
