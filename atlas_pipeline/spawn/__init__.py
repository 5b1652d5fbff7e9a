"""The coding agent: who may do what, its prompt, its work tree, its pseudo-terminal, its events, its contract.

    profile, prompts    what the agent may do, and what it is told
    worktree            where it works: a git work tree on a branch of its own
    session             one run: starts the wrapper, hands events over live, stops everything when told to
    pty                 the wrapper, a program of its own: the agent in a pseudo-terminal, its lines on stdout
    command, environment, lines, relay, processes   what the wrapper is made of
    events, outcome     what the lines mean, and how a run ended
    contract            the result file, believed as far as it can be checked

Which message gets an agent, and the lock that keeps two from starting, is in ``select`` and ``lock``. Nothing here
deploys, sends, or writes a status.
"""
