"""The mailbox: listing it, keeping the bytes, understanding as much of a mail as can be understood, and who wrote it.

    source        what a mailbox can do, and ``open_source``
    imap, maildir the two kinds
    parse         bytes to ``ParsedMail``; never raises. Uses mime (the tree), headers, text (decoding), html
    fingerprint   which mails are the same mail
    forwards      the mail inside a forward
    trust         how far the From is believed, and which tenant it belongs to

Not here: the ledger and every row (``store``), when to look (``orchestration``), opening attachments (``scan`` first).
"""
