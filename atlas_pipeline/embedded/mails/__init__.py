"""The mailbox of the demo: about a dozen mails as real clients write them, and what should become of each.

    texts.yaml  what the mails say
    letters     the mails, in the order they arrive, with their expected fate
    clients     the MIME shapes of mail clients
    picture     the screenshot, drawn when it is asked for
    maildir     delivering them, once

Exists under ``ATLAS_DEMO`` alone. Nothing here knows how the pipeline reads a mail.
"""

from atlas_pipeline.embedded.mails.letters import (
    DEMO_MAILS,
    FOUNDER,
    MAILBOX,
    TEAM_DOMAIN,
    TEAM_INBOX,
    DemoMail,
    Scene,
)
from atlas_pipeline.embedded.mails.maildir import write_demo_mails

__all__ = ["DEMO_MAILS", "FOUNDER", "MAILBOX", "TEAM_DOMAIN", "TEAM_INBOX", "DemoMail", "Scene", "write_demo_mails"]
