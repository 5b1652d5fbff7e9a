"""Asking models: one provider layer under two policies.

    provider     what each can do; http, reply, vectors: the shared ways of calling and reading
    mistral, anthropic, openai, voyage, agent, local
    routing      the file that says which does what; providers: who is there
    router       a task's routes in order, with patience (breaker, budget); gateway: text for people, in the sovereign order
    intent_model the local classifier; fit makes its vectors

What is asked, and what an answer means, is the caller's business (``classify``). Nothing here knows an intent's consequences.
"""
