"""Months of a made-up agency, written by the database itself: for the report, the notebooks and the benchmark.

The same rows each time: every choice is a hash of the mail's number. Half-way the prompt changes and the model grows surer of itself.
Clients: ``atelier`` (the agency itself, internal), ``lorme`` and ``moulin``; one mail in eight is about nobody in particular.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import psycopg

from tests.fixtures_flow import Row

FIRST = datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))

# chance(n, salt) lies in [0, 1); the same for the same two numbers.
_CASES = """
create temporary table cases as
select n, at, key, intent, classifier_intent, confidence, confidence < 0.7 as uncertain, model, prompt,
    case when model = 'rule/automatic' then array['automatic_mail']
        when intent <> classifier_intent then array['existing_client_guard'] else '{}'::text[] end
        || case when confidence < 0.7 then array['classification_uncertain'] else '{}'::text[] end as guards,
    tenant, good, fate,
    case intent when 'run' then 'runs' when 'chantier' then 'chantiers' when 'question' then 'questions'
        when 'negociation' then 'negociations' when 'conseil' then 'conseils' end as kind
from (
    select n, at, key, tenant, fate, judged < stated - 0.05 as good,
        case when rule < 0.05 then 'noise' else concluded end as classifier_intent,
        case when rule < 0.05 then 'noise' when concluded = 'conseil' and guard < 0.3 then 'run' else concluded end as intent,
        case when rule < 0.05 then 1.0 else stated end as confidence,
        case when rule < 0.05 then 'rule/automatic' else model end as model,
        case when rule < 0.05 then 'none' else prompt end as prompt
    from (
        select n, at, to_char(at, 'YYYYMMDD') || '-' || lpad(n::text, 6, '0') as key,
            (array['run', 'run', 'chantier', 'chantier', 'question', 'question', 'noise', 'noise', 'negociation', 'conseil'])
                [1 + floor(chance(n, 1) * 10)] as concluded,
            case when n < %(cases)s / 2 then 0.5 + 0.5 * sqrt(chance(n, 2)) else 0.6 + 0.4 * sqrt(chance(n, 2)) end as stated,
            (array['atelier', 'atelier', 'atelier', 'lorme', 'lorme', 'moulin', 'moulin', null])[1 + floor(chance(n, 3) * 8)] as tenant,
            case when n < %(cases)s / 2 then 'classify-1' else 'classify-2' end as prompt,
            (array['mistral/mistral-small-2506', 'anthropic/claude-haiku-4-5'])[1 + (chance(n, 4) < 0.03)::int] as model,
            chance(n, 5) as judged, chance(n, 6) as fate, chance(n, 7) as rule, chance(n, 8) as guard
        from generate_series(0, %(cases)s - 1) n, lateral (select %(first)s + n * (%(end)s - %(first)s) / %(cases)s as at) moment
    ) drawn) guarded
"""
_STATEMENTS = (
    "create function pg_temp.chance(n bigint, salt int) returns double precision language sql immutable as "
    "$$ select (hashint8extended(n, salt) & 1048575) / 1048576.0 $$",
    "insert into atlas.tenants (slug, name, internal) values ('atelier', 'Atelier', true), ('lorme', 'Lorme', false), "
    "('moulin', 'Moulin', false)",
    _CASES,
    "insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, message_key, internal_date, size_bytes, listed_at, fetched_at, flagged_at) "
    "select 'box', 1, n::text, key, at - interval '5 s', 100, at - interval '3 s', at - interval '2 s', at from cases order by n",
    "insert into atlas.messages (message_key, raw, raw_sha256, stored_at, understood_at, fingerprint) "
    "select key, 'raw', 'x', at, at, n::text from cases order by n",
    "insert into atlas.inbox (message_key, status, intent, classifier_intent, final_intent, confidence, model, tenant, work_kind, "
    "received_at, classified_at) "
    "select key, case when kind is null then 'closed' else 'actioned' end, intent, classifier_intent, "
    "case when intent = 'chantier' and fate > 0.93 and fate < 0.95 then 'question' when kind is not null then intent end, "
    "confidence, model, tenant, kind, at, at from cases order by n",
    "insert into atlas.classifications (at, message_key, intent, classifier_intent, confidence, uncertain, model, prompt_version, guards, tenant) "
    "select at, key, intent, classifier_intent, confidence, uncertain, model, prompt, guards, tenant from cases order by n",
    *(
        f"insert into atlas.{kind} (message_key, title, tenant, status, created_at, decided_at, decided_by) "  # noqa: S608  # ours
        "select key, 't', tenant, case when fate < 0.3 then 'draft' when good or fate < 0.7 then 'accepted' else 'cancelled' end, at, "
        "case when fate >= 0.3 then at + fate * interval '20 days' end, case when fate >= 0.3 then 'operator:lea' end "
        f"from cases where kind = '{kind}' order by n"
        for kind in ("runs", "chantiers", "questions", "negociations", "conseils")
    ),
    "insert into atlas.corrections (at, message_key, intent, actor) select at + interval '2 days', key, "
    "case when good then intent when intent = 'question' then 'chantier' else 'question' end, 'operator:lea' "
    "from cases where fate > 0.95 order by n",
    "insert into atlas.ai_calls (at, message_key, task, provider, model, code, tokens_in, tokens_out, milliseconds, euros) "
    "select at, key, 'classification', split_part(model, '/', 1), model, case when fate < 0.01 then 'answer_invalid' else 'ok' end, "
    "900 + (fate * 200)::int, 60, 300 + (fate * fate * 2000)::int, 0.0002 from cases where model not like 'rule/%' order by n",
    "insert into atlas.audit_log (at, message_key, action, actor, detail) select at, key, 'classified', 'classify', '{}' from cases order by n",
    "insert into atlas.audit_log (at, message_key, action, actor, detail) select at, key, "
    "case when fate < 0.005 then 'intake_failed' else 'blocked_unsafe' end, 'intake', '{}' from cases where fate < 0.01 order by n",
    "insert into atlas.audit_log (at, message_key, action, actor, detail) select at + interval '1 hour', key, "
    "case when fate > 0.97 then 'escalated' else 'actioned' end, 'recap', jsonb_build_object('attempt', 1 + (fate > 0.6)::int + (fate > 0.9)::int) "
    "from cases where kind = 'chantiers' order by n",
    "insert into atlas.spawns (message_key, round, attempt, try, status, profile, tenant, agent, model, claimed_at, seconds, cost_usd, "
    "tokens_in, tokens_out, tokens_cache_read) select key, 1, 1, 1, case when fate > 0.97 then 'failed' else 'ok' end, 'write', tenant, "
    "'backend', 'sonnet', at + interval '5 minutes', 60 + fate * 900, 0.1 + fate, 1000, 500, 20000 from cases where kind = 'chantiers' order by n",
    "insert into atlas.notifications (message_key, round, attempt, kind, message_id, facts, state, sent_at) "
    "select key, 1, 1, 'recap', '<' || key || '>', '{}', 'sent', at + interval '1 minute' + fate * interval '1 hour' "
    "from cases where kind is not null order by n",
    "drop table cases",
)


def generate(connection: psycopg.Connection[Row], *, cases: int, months: int = 12) -> None:
    """Write so many mails, evenly over ``months`` months from ``FIRST``, with all that became of them. In autocommit."""
    year, month = divmod(FIRST.month - 1 + months, 12)
    end = FIRST.replace(year=FIRST.year + year, month=month + 1)
    with connection.transaction():
        connection.execute(
            "set local session_replication_role = replica"
        )  # no triggers: the rows fit together as they are made
        connection.execute("set local time zone 'UTC'")
        for statement in _STATEMENTS:
            if "%(" in statement:
                # One value a name: PostgreSQL plans the statement with the numbers in it.
                with psycopg.ClientCursor(connection) as cursor:
                    text = statement.replace("chance(", "pg_temp.chance(")
                    cursor.execute(text.encode(), {"first": FIRST, "end": end, "cases": cases})
            else:
                connection.execute(statement.encode())
    connection.execute("vacuum analyze")
