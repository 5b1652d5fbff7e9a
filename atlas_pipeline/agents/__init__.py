"""Agents: who acts, and how a model becomes that agent.

    registry.yaml  the agents that come with Atlas
    load           the file, validated
    persona        an agent rendered into a prompt, in tiers
    designate      which agent takes a message

The tables (agents, satellites, scars) are the store's.
"""
