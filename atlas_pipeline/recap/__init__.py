"""Recap: what the team is told about a message, and the one way out of the house.

    facts      what a recap says, as plain values
    words      labels and next steps, French and English
    sections   the facts as titled sections, and their text and HTML renderings
    pictures   the screenshots that travel, made small
    compose    the mail: headers, alternatives, screenshots
    guard      team addresses only, or no mail at all
    send       SMTP or a folder; the only module that may open an SMTP connection
    self_test  the exit tries itself, for `atlas doctor`

The outbox (claiming a row, its states, its retries) is the store's.
"""
