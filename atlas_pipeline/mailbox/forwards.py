"""The mail inside a forward. What stands there is a claim, the forwarder's or a header's, never proof.

Blocks of labels are read by ``forward_blocks.py``, what else a mail program puts above a forward by the library behind
``forward_library.py``. Confidence, by what was found (``confidence`` of ``Forward``):

    0.95  an attached mail
    0.90  a mail with an address in the text, under a subject that says forward; automatic forwarding
    0.80  a mail with an address below a separator, where the subject says nothing
    0.60  a block of labels with an address and no separator, where the subject says nothing
    0.50  two parts name different senders: ``conflict`` is True
    0.40  a mail with a name only
    0.30  a line that announces a forward, and no sender below it

Of nested forwards the outermost counts: who sent that one to the forwarder asks; the deeper mails are in its body.
Not here: what the requester may do (``trust.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from atlas_pipeline.mailbox import forward_library, headers
from atlas_pipeline.mailbox.forward_blocks import Block, Separator, lines_of, read_block
from atlas_pipeline.mailbox.html import html_to_text
from atlas_pipeline.mailbox.mime import read_content
from atlas_pipeline.mailbox.tree import read
from atlas_pipeline.model import Address, Forward, Part
from atlas_pipeline.text import one_line

MAX_BODY_CHARS = 200_000

_TAGS = r"\s*(?:\[[^\[\]]{1,40}\]\s*){0,3}"
_REPLY = re.compile(
    _TAGS + r"(?:re|aw|sv|antw|antwort|rép|rep|ré|odp|ynt|yan|r|vá|ref|res|rif|bls|atb|hl|απ|отв|ответ|відп|על|رد"
    r"|回复|回覆|答复|答覆|返信|답장|회신)\s*(?:\[\d+\])?\s*[:：]",
    re.IGNORECASE,
)
_FORWARD = re.compile(
    _TAGS
    + r"(?:fwd?|tr|wg|rv|vs|i|pd|enc|redir\.?|vb|vl|videresend|i̇lt|İlt|ilt|doorst|transf|továbbítás|reenv|inoltra|fs|πρθ"
    r"|пер|пересл|переслать|转发|轉寄|轉發|転送|전달)\s*(?:\[\d+\])?\s*[:：]\s*",
    re.IGNORECASE,
)
_FORWARD_BEHIND = re.compile(r"\s*\(fwd\)\s*$", re.IGNORECASE)
_PLAUSIBLE = re.compile(r"[^\s@<>\"',;]{1,64}@[^\s@<>\"',;]{1,255}")


def find_forward(
    subject: str | None, body_text: str, body_html: str | None, parts: Sequence[Part], fields: headers.Fields = ()
) -> Forward:
    """Find the original mail: in the text, in the HTML, attached, or, by the ``fields`` of its header, this mail itself.

    A mail in the text goes before an attached one: mails are forwarded with what was attached to them. Automatic
    forwarding comes last, since a rule may pass on a mail in which a person forwards another. Never raises.
    """
    written = _written(subject, body_text, body_html)
    attached = _attached(subject, parts)
    if written is None or not written.sender.address or attached is None:
        return attached or written or _automatic(subject, body_text, fields) or Forward(found=False)
    return _compared(written, attached)


def _compared(chosen: Forward, other: Forward) -> Forward:
    """Mark what two parts say differently; neither is believed more than the other."""
    one, two = (chosen.sender.address or "").lower(), (other.sender.address or "").lower()
    return replace(chosen, confidence=0.5, conflict=True) if one and two and one != two else chosen


def _written(subject: str | None, body_text: str, body_html: str | None) -> Forward | None:
    plain = _inline(subject, body_text, "inline_text")
    if not body_html or "@" not in body_html:
        return plain
    html = _inline(subject, html_to_text(body_html)[0], "inline_html")
    if plain is None or html is None:
        return plain or html
    return _compared(plain, html) if plain.sender.address or not html.sender.address else html


def _attached(subject: str | None, parts: Sequence[Part]) -> Forward | None:
    """Read the first attached mail; a reply that carries one is an answer with an enclosure, not a forward."""
    part = next((part for part in parts if part.sniffed_type == "message/rfc822" and part.content), None)
    if part is None or _is_reply(subject):
        return None
    try:
        message = read(part.content)
        content = read_content(part.content, message)
    except RecursionError:
        return None
    found, _ = headers.fields(message.raw_items())
    senders = headers.addresses(headers.values(found, "from"))
    if not senders:
        return None
    return Forward(
        found=True,
        method="attachment",
        confidence=0.95,
        sender=senders[0],
        subject=headers.decoded(headers.first(found, "subject") or "") or None,
        date=headers.decoded(headers.first(found, "date") or "") or None,
        body=content.body_text,
    )


def _automatic(subject: str | None, body_text: str, fields: headers.Fields) -> Forward | None:
    """Read what a forwarding rule leaves: From is the original already, the forwarder stands in X-Forwarded-For alone.

    Anyone can write these headers; they change neither who is judged nor who asks.
    """
    by = headers.unfolded(headers.first(fields, "x-forwarded-for") or "").replace(",", " ").split()
    to = headers.unfolded(headers.first(fields, "x-forwarded-to") or "")
    forwarder = by[0].strip("<>") if by else ""
    if not (_PLAUSIBLE.fullmatch(forwarder) or _PLAUSIBLE.search(to)):
        return None
    senders = headers.addresses(headers.values(fields, "from"))
    if not senders:
        return None
    return Forward(
        found=True,
        method="automatic",
        confidence=0.9,
        sender=senders[0],
        subject=subject or None,
        date=headers.decoded(headers.first(fields, "date") or "") or None,
        body=body_text,
        forwarder=Address(None, forwarder if _PLAUSIBLE.fullmatch(forwarder) else None),
    )


def _is_reply(subject: str | None) -> bool:
    return bool(subject and _REPLY.match(subject))


def _said_to_forward(subject: str | None) -> str | None:
    """Return what a forward's subject says besides that it is one; None where it doesn't."""
    line = one_line(subject or "")[:1000]
    if _FORWARD.match(line):
        return _FORWARD.sub("", line, count=1)
    return _FORWARD_BEHIND.sub("", line) if _FORWARD_BEHIND.search(line) and not _is_reply(line) else None


def _inline(subject: str | None, text: str, method: str) -> Forward | None:
    text = text[:MAX_BODY_CHARS]
    if not text.strip():
        return None
    said = _said_to_forward(subject)
    block = read_block(text)
    if block is not None and said is None and not _counts(subject, block):
        block = None
    if block is None and said is None:
        return None
    if block is None or block.answered or not (block.sender.address or block.sender.name):
        # Without a subject that says forward, only what an announcing line stands above is shown to the library.
        shown = text if block is None or said is not None else "\n".join(lines_of(text)[block.start :])
        answer = forward_library.ask(shown, said)
        if answer is not None and (block is None or answer.sender.address):
            confidence = _confidence(answer.sender, said, Separator.FORWARD)
            return Forward(
                True, method, confidence, answer.sender, subject=answer.subject, date=answer.date, body=answer.body
            )
    if block is None:
        return None
    confidence = _confidence(block.sender, said, block.separator)
    return Forward(
        True, method, confidence, block.sender, subject=block.subject or said, date=block.date, body=block.body
    )


def _counts(subject: str | None, block: Block) -> bool:
    """Whether a block makes a forward of a mail whose subject doesn't say so.

    An answer quotes with the very block that a forward has, so under its subject an announcing line is needed. Under any
    other, the kind of block that answers have below somebody's words is taken for an answer's: people change subjects, and
    a wrong requester sends work to a wrong client.
    """
    if block.answered:
        return False
    if block.separator is Separator.FORWARD:
        return True
    if _is_reply(subject) or (block.separator is Separator.NONE and not block.sender.address):
        return False
    return block.separator is Separator.RULE or block.alone or not block.as_in_answers


def _confidence(sender: Address, said: str | None, separator: Separator) -> float:
    if not sender.address:
        return 0.4 if sender.name else 0.3
    if said is not None:
        return 0.9
    return 0.6 if separator is Separator.NONE else 0.8
