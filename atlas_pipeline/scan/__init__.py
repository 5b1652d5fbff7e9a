"""The antivirus stage: nothing of a mail is opened before clamd said OK to it.

    scanner   what a scanner is, and where clamd listens
    client    the conversation with clamd, and what its words mean; fails closed
    archive   what a zip's own directory gives away (encrypted, far too large)
    mail      a mail as a whole and each of its parts: the worst verdict counts

What happens to a mail that is not clean is decided elsewhere; nothing here stores, opens or unpacks anything.
"""
