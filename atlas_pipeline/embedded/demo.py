"""The demo: a small agency, its mailbox and its one client, on the real pipeline. Exists under ATLAS_DEMO alone.

Every part it sets up stands behind the same setting as the real one; a variable that is set already is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from atlas_pipeline.embedded.clamd import EmbeddedClamd
from atlas_pipeline.embedded.house import House
from atlas_pipeline.embedded.mails import FOUNDER, MAILBOX, TEAM_DOMAIN, TEAM_INBOX, write_demo_mails
from atlas_pipeline.embedded.process import bare_environment, free_port, port_is_free, wait_port
from atlas_pipeline.embedded.tenant import ensure_demo_tenant, site_command
from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import Tenant
from atlas_pipeline.settings import Settings, load

AUTHSERV_ID = f"mx.{TEAM_DOMAIN}"
STANDIN = Path(__file__).resolve().parent / "standin" / "claude.py"
_SITE_SECONDS = 20.0


@dataclass(frozen=True)
class DemoFolders:
    """Where the demo's parts lie below the state folder."""

    root: Path

    @property
    def maildir(self) -> Path:
        """The mailbox."""
        return self.root / "maildir"

    @property
    def outbox(self) -> Path:
        """Where recaps are written as .eml files."""
        return self.root / "outbox"

    @property
    def site(self) -> Path:
        """The tenant's repository and its deployed site."""
        return self.root / "site"

    @property
    def clamd(self) -> Path:
        """The antivirus with its test signatures."""
        return self.root / "clamd"


def folders(settings: Settings) -> DemoFolders:
    """The demo's folders. Raises NotConfigured("demo_not_enabled") without ATLAS_DEMO=1."""
    if not settings.demo:
        raise NotConfigured("demo_not_enabled", variable="ATLAS_DEMO")
    return DemoFolders(settings.home_dir / "demo")


def was_here(settings: Settings) -> bool:
    """Whether this state folder's database holds the demo's tenant and mails."""
    return (settings.home_dir / "demo" / "scene").is_file()


def apply_defaults(settings: Settings) -> Settings:
    """Point every part that is not configured at the demo's, in this process's environment; the settings read anew."""
    place = folders(settings)
    defaults = {
        "ATLAS_FOUNDER_ADDRESSES": FOUNDER,
        "ATLAS_TEAM_DOMAINS": TEAM_DOMAIN,
        "ATLAS_TEAM_RECIPIENTS": TEAM_INBOX,
        "ATLAS_AUTHSERV_IDS": AUTHSERV_ID,
        "ATLAS_MAIL_FROM": MAILBOX,
        "ATLAS_POLL_SECONDS": "5",
        "ATLAS_UNFINISHED_SECONDS": "5",
        "ATLAS_AGENT_BIN": str(STANDIN),
        **({} if settings.imap_url else {"ATLAS_MAILDIR": str(place.maildir)}),
        **({} if settings.smtp_url else {"ATLAS_OUTBOX_DIR": str(place.outbox)}),
    }
    address = EmbeddedClamd(place.clamd).status()["address"]
    if address is not None:
        defaults["ATLAS_CLAMD"] = address
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    return load()


def furnish(house: House, settings: Settings) -> tuple[Settings, Tenant]:
    """Start clamd and the tenant's site, deliver the mails that are not there yet; the settings as they are then."""
    place = folders(settings)
    if not settings.clamd:
        house.say("antivirus: clamd with a test signature")
        clamd = EmbeddedClamd(place.clamd)
        os.environ["ATLAS_CLAMD"] = clamd.ensure()
        house.on_stop(clamd.stop)
    settings = apply_defaults(settings)
    house.say("client: Menuiserie Lorme, its git repository and its site")
    port = _kept_port(place.root / "site-port")
    tenant = ensure_demo_tenant(place.site, port)
    house.start("site", site_command(place.site, port), bare_environment())
    if not wait_port(port, _SITE_SECONDS):
        house.check()
        raise NotConfigured("demo_site_not_answering")
    place.outbox.mkdir(parents=True, exist_ok=True)
    if settings.maildir == place.maildir:
        start, canary = _scene(place.root)
        written = write_demo_mails(place.maildir, authserv_id=AUTHSERV_ID, start=start, canary=canary)
        house.say(f"mailbox: {len(written)} mails delivered" if written else "mailbox: as it was left")
    return settings, tenant


def _scene(root: Path) -> tuple[datetime, str]:
    """When the demo's first mail was written, kept between runs; and the word that exists in its screenshot alone."""
    file = root / "scene"
    if not file.exists():
        root.mkdir(parents=True, exist_ok=True)
        start = (datetime.now(UTC) - timedelta(hours=3)).replace(microsecond=0)
        unfinished = root / "scene.tmp"
        unfinished.write_text(start.isoformat(), encoding="utf-8")
        unfinished.rename(file)
    start = datetime.fromisoformat(file.read_text(encoding="utf-8"))
    return start, canary_of(start)


def canary_of(start: datetime) -> str:
    """A word that tesseract reads well and nobody writes by chance. Derived, so that no file has to hold it."""
    digest = hashlib.sha256(f"atlas demo {start.isoformat()}".encode()).digest()
    return "Z" + "".join("BDFGKMPRTVX"[byte % 11] + "AEU"[byte % 3] for byte in digest[:5])


def _kept_port(file: Path) -> int:
    """The site's port, the same as last time where it is free: recaps of earlier runs link to it."""
    if file.exists() and port_is_free(int(file.read_text(encoding="utf-8"))):
        return int(file.read_text(encoding="utf-8"))
    port = free_port()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(port), encoding="utf-8")
    return port


def missing_programs(settings: Settings) -> list[str]:
    """System programs that the demo needs and this machine lacks."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    wanted = [settings.tesseract, settings.chromium, "git", *([] if settings.clamd else ["clamd"])]
    return [program for program in wanted if shutil.which(program, path=path) is None]
