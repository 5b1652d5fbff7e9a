"""The demo tenant's site: its first version (``template``), the agency's deploy tool, and the pre-production server.

Only the demo uses it. The template is data: it is copied into the tenant's repository once and lives on there.
"""
