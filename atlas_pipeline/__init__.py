"""Atlas: an e-mail forwarded to one mailbox becomes finished work.

The way of a mail through the house, a package a stage:

    mailbox    lists the mailbox, keeps the bytes, understands as much as can be understood; who wrote, and is it proven
    scan       asks clamd before anything opens an attachment; only an exact OK opens the door
    ocr        reads pictures, in memory only
    classify   the intent, behind guards; uses ai (router, providers)
    agents     who acts: personas, and the lessons that apply
    spawn      starts the coding agent in a pseudo-terminal, watches it live, reads its contract
    release    deploys to pre-production, checks over HTTP and in a browser, decides
    recap      tells the team, and nobody else
    calibration  how well did we classify this month

Around them: ``model`` (what stages hand each other), ``errors``, ``settings``, ``store`` (PostgreSQL), ``embedded`` (what runs
when nothing is configured), ``flow`` (the stages chained, as plain functions), ``orchestration`` (the same as Dagster assets,
sensors and schedules; the only package that imports dagster), ``cli``.
"""
