"""The stages chained, as plain functions over the database. No Dagster, no decisions of a stage's own.

stage       what a step reports            parts       the real or embedded component behind each stage
discovery   mailbox → ledger               intake      one range of messages: fetch, understand, scan, read, classify
fetching    bodies, once each              understanding   what they say        watchdog    a time limit for one mail
pulse       whether the mailbox is read
spawning    one agent for one message      releasing   deploy and checks        recapping   the last decision, the outbox
watching    what was left behind           operator    what a human may order
models      the router, as configured      learning    what operators corrected  writing     reply drafts, the dialogue
briefing    what an agent is told          teaching    its registry and lessons  domains     who writes for what
legacy      the older way to call an agent  calibrating   the month's report    promoting   the phase
replaying   a month judged again, beside the truth
"""
