"""Agents: who acts, and how a model becomes that agent.

    registry.yaml  the agents that come with Atlas
    load           the file, validated
    persona        an agent rendered into a prompt, in tiers
    designate      which agent takes a message, or writes for a prompt domain
    ranking        which of the lessons found is told first
    reactor        all of them as a picture

The tables (agents, satellites, scars) are the store's.
"""
