"""The only package that imports dagster: when things run, and what the UI shows. No decision is taken here.

    build       puts the definitions together         partitions  messages, attempts, months
    inbox       intake: the four inbox assets         action      spawn_result, qa_report, recap
    steering    report, registry, scars, heartbeat    checks      what must hold, never blocking
    sensors     the mailbox, and what is unfinished   schedules   spawn cycle, outbox, guard, report, maintenance
    planning    pure: keys to ranges, runs to live    upkeep      old runs and partitions

Every body opens ``Parts`` from the environment, calls one function of ``flow`` and turns its report into an event.
"""
