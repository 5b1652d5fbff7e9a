"""Asking models: one provider layer (Mistral over HTTP, the embedded local one) under one router.

What is asked, and what an answer means, is the caller's business (``classify``).
Nothing here knows an intent's consequences.
"""
