"""From what a mail says to what it asks for: prompt, strict answer, guards, decision.

``decide.classify`` is the way in. Nothing here stores anything, opens an attachment, or sets
anything in motion.
"""
