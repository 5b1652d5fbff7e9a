"""After the agent: deploy to pre-production, look at the site, decide.

    deploy         runs the tenant's deploy command, whole and bounded; is the right commit live
    http_check     one GET a route
    browser_check  one Chromium a report, in a process of its own (browser_worker)
    qa             both levels over all routes
    decide         what comes next, a pure function; and the feedback for the next attempt

Nothing here reads the contract, writes a row or sends a mail. Every check is of the deployed site, never of the
agent's word.
"""
