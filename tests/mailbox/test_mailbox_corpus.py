"""The public mails, beside what others say of them. Where we differ, this file says why."""

from __future__ import annotations

from pathlib import Path

from tests.mail_cases import SETS, all_facts

# Keep what another parser drops or counts as text, count what is inside an attached mail, leave out generated names.
KEPT = "a part without a name, or of a delivery report, is kept as an attachment, to be scanned"
INSIDE = "attachments of attached mails are ours too: they are scanned and read as any"
TEXT = "a second text, or a text with a broken boundary, is body to us"
REWRITTEN = "a nested mail is kept as received, not written anew"
CHARSET = "undecodable bytes of a name: another replacement, nothing lost"
DECODED = "an encoded word in a quoted name is decoded, as mail programs show it"
GENERATED = "the other parser makes up names for parts that have none"
OPINION = "the other parser's own reading"

EXPLAINED = {
    ("mime_stalwart/malformed/005.eml", "n_attachments"): KEPT,
    ("mime_stalwart/malformed/007.eml", "n_attachments"): TEXT,
    ("mime_stalwart/malformed/010.eml", "n_attachments"): INSIDE,
    ("mime_stalwart/malformed/011.eml", "n_attachments"): TEXT,
    ("mime_stalwart/malformed/012.eml", "n_attachments"): INSIDE,
    ("mime_stalwart/malformed/013.eml", "n_attachments"): KEPT,
    ("mime_stalwart/malformed/017.eml", "n_attachments"): TEXT,
    ("mime_stalwart/rfc/001.eml", "from"): "a name without a domain is shown as the address that it claims to be",
    ("mime_stalwart/rfc/004.eml", "from"): "a name without a domain is shown as the address that it claims to be",
    ("mime_stalwart/thirdparty/002.eml", "n_attachments"): TEXT,
    ("mime_stalwart/thirdparty/007.eml", "attachment_names"): INSIDE,
    ("mime_stalwart/thirdparty/007.eml", "n_attachments"): INSIDE,
    ("mime_stalwart/thirdparty/012.eml", "n_attachments"): OPINION,
    ("mime_stalwart/thirdparty/015.eml", "attachment_names"): INSIDE,
    ("mime_stalwart/thirdparty/015.eml", "n_attachments"): INSIDE,
    ("mime_imap_tools/attachment_emails/attachment_with_encoded_name.eml", "attachments"): CHARSET,
    ("mime_imap_tools/plain_emails/raw_email8.eml", "attachments"): CHARSET,
    (
        "mime_imap_tools/error_emails/invalid_subject_characters.eml",
        "subject",
    ): "8-bit letters are decoded, not dropped",
    ("mime_imap_tools/error_emails/empty_in_reply_to.eml", "attachments"): KEPT,
    ("mime_imap_tools/error_emails/must_supply_encoding.eml", "attachments"): KEPT,
    ("mime_imap_tools/mime_emails/raw_email11.eml", "attachments"): KEPT,
    ("mime_imap_tools/mime_emails/raw_email_with_mimepart_without_content_type.eml", "attachments"): INSIDE,
    ("mime_imap_tools/multipart_report_emails/multi_address_bounce1.eml", "attachments"): KEPT,
    ("mime_imap_tools/multipart_report_emails/multi_address_bounce2.eml", "attachments"): KEPT,
    ("mime_imap_tools/multipart_report_emails/multipart_report_multiple_status.eml", "attachments"): REWRITTEN,
    ("mime_imap_tools/multipart_report_emails/report_422.eml", "attachments"): KEPT,
    ("mime_imap_tools/multipart_report_emails/report_530.eml", "attachments"): KEPT,
    ("mime_imap_tools/rfc2822/example13.eml", "from"): OPINION,
    ("mime_imap_tools/rfc2822/example14.eml", "subject"): "a blank between a word and an encoded word is shown",
    ("mime_webklex/attachment_long_filename.eml", "attachment_names"): "a file name in another charset than it says",
    ("mime_webklex/embedded_email_without_content_disposition.eml", "attachment_names"): INSIDE,
    ("mime_webklex/embedded_email_without_content_disposition.eml", "n_attachments"): INSIDE,
    ("mime_webklex/example_bounce.eml", "attachment_names"): GENERATED,
    ("mime_webklex/inline_attachment.eml", "attachment_names"): GENERATED,
    ("mime_webklex/issue-414.eml", "attachment_names"): GENERATED,
    ("mime_webklex/imap_mime_header_decode_returns_false.eml", "subject"): "broken base64 is shown as far as it goes",
    ("mime_webklex/issue-275-2.eml", "subject"): "the manifest's values are those of the neighbouring case",
    ("mime_webklex/issue-275-2.eml", "text"): "the manifest's values are those of the neighbouring case",
    ("mime_django_mailbox/bad_character_attachment.eml", "filenames_stdlib"): CHARSET,
    ("mime_django_mailbox/message_with_not_decoded_attachment_header.eml", "filenames_stdlib"): CHARSET,
    ("tnef_tnefparse/minimal_attachment.tnef", "attachment_names"): GENERATED,
    ("tnef_tnefparse/unicode-mapi-attr.tnef", "body_kind"): "it has both bodies",
    ("mime_mime4j/mimetools-testmsgs/multi-2gifs-base64.msg", "filenames_stdlib"): INSIDE,
    ("mime_mime4j/mimetools-testmsgs/multi-igor2.msg", "filenames_stdlib"): INSIDE,
    ("mime_mime4j/mimetools-testmsgs/russian.msg", "filenames_stdlib"): DECODED,
    ("mime_mime4j/testmsgs/russian-headers.msg", "filenames_stdlib"): DECODED,
    ("mime_mime4j/mimetools-testmsgs/x-gzip64.msg", "filenames_stdlib"): "a mail's only part, a text, is its body",
}


def test_every_stated_fact_agrees_or_is_explained(corpus: Path) -> None:
    """Both ways: an explanation that is not needed any more goes."""
    found = list(all_facts(corpus))
    assert {fact.set_ for fact in found} == set(SETS)
    assert {(fact.path, fact.name) for fact in found if not fact.agrees} == set(EXPLAINED)
    assert len(found) > 550
