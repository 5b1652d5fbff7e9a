"""The mailbox: listing it, keeping the bytes, understanding as much of a mail as can be understood, and who wrote it.

    source        what a mailbox can do, and ``open_source``
    imap, maildir the two kinds; oauth gets tokens for the first, imap_salvage what a cut answer had brought
    parse         bytes to ``ParsedMail``; never raises. Uses mime (the tree), headers, text (decoding), html, tnef
    fingerprint   which mails are the same mail
    forwards      the mail inside a forward: forward_blocks reads label blocks, forward_library asks the library for the rest
    trust         how far the From is believed, and which tenant it belongs to

Not here: the ledger and every row (``store``), when to look (``orchestration``), opening attachments (``scan`` first).
"""
