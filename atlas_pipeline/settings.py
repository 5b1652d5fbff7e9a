"""Every environment variable, in one place. Constants of the specification live here and nowhere else.

``load()`` reads the environment when it is called; nothing is read at import. Secrets are ``SecretStr``.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

CommaList = Annotated[tuple[str, ...], NoDecode]


# Minute, hour, day of the month, month, day of the week.
_CRON_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_LOGIN = r"\s*[a-z0-9-]+=[^\s,:@/?#]+:[^\s,:@/?#]*\s*"
_LOGINS = re.compile(f"{_LOGIN}(,{_LOGIN})*")
_CRON_ITEM = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")


def _is_cron_field(text: str, bounds: tuple[int, int]) -> bool:
    low, high = bounds
    for item in text.split(","):
        match = _CRON_ITEM.fullmatch(item)
        if match is None or match.group(3) == "0":
            return False
        ends = [int(end) for end in match.group(1, 2) if end is not None]
        if not all(low <= end <= high for end in ends) or ends != sorted(ends):
            return False
    return True


class Settings(BaseSettings):
    """The configuration of one Atlas instance. Lists are comma-separated; durations say their unit in their name."""

    model_config = SettingsConfigDict(
        env_prefix="ATLAS_", env_ignore_empty=True, extra="ignore", hide_input_in_errors=True, frozen=True
    )

    # Where things are
    home: Path = Field(
        Path(".atlas"), description="Folder of local state: embedded database, Dagster's files, screenshots"
    )
    database_url: SecretStr | None = Field(None, description="Atlas's PostgreSQL; empty: an embedded server is started")
    dagster_url: SecretStr | None = Field(
        None, description="Dagster's own database, postgresql+psycopg2://; empty: beside Atlas's"
    )
    demo: bool = Field(
        False, description="Allow the demo parts (Maildir, tenant, stand-in agent, test signatures, outbox folder)"
    )
    language: str = Field("fr", description="Language of recaps and labels: fr or en")
    time_zone: str = Field("Europe/Paris", description="Time zone of month borders and of dates shown to people")
    ui_host: str = Field("127.0.0.1", description="Address the Dagster UI listens on")
    ui_port: int = Field(
        3000, ge=1, le=65535, description="Port of the Dagster UI; the next free one is taken when it is in use"
    )

    # Mailbox
    imap_url: SecretStr | None = Field(
        None, description="imaps://user:password@host[:port]/FOLDER; imap:// is refused unless on loopback"
    )
    imap_oauth_token_url: str | None = Field(
        None, description="XOAUTH2: the provider's token endpoint; the IMAP URL then has no password"
    )
    imap_oauth_client_id: str | None = Field(None, description="XOAUTH2: the client's id")
    imap_oauth_client_secret: SecretStr | None = Field(
        None, description="XOAUTH2: the client's secret, where it has one"
    )
    imap_oauth_refresh_token: SecretStr | None = Field(None, description="XOAUTH2: the refresh token")
    imap_oauth_scope: str | None = Field(
        None, description="XOAUTH2: the scope to ask for, where the provider wants one"
    )
    imap_ca_file: Path | None = Field(None, description="Certificate authority for the IMAP server, PEM")
    imap_timeout_seconds: float = Field(30.0, gt=0, description="Time-out of one IMAP command")
    maildir: Path | None = Field(None, description="A Maildir to read in place of IMAP")
    poll_seconds: int = Field(60, gt=0, description="Interval of the mailbox sensor")
    max_message_bytes: int = Field(
        50_000_000, gt=0, description="Larger mails get a row and a coded reason, and stay unread"
    )

    thread_mails_per_hour: int = Field(
        20, gt=0, description="Mails of one conversation taken in an hour; those beyond are set aside"
    )

    # Who is who
    understanding_timeout_seconds: float = Field(
        60.0, gt=0, description="Time limit for understanding one mail; a mail that exceeds it twice is set aside"
    )
    founder_addresses: CommaList = Field((), description="The founder's addresses")
    team_domains: CommaList = Field((), description="Domains of the team: the only ones a mail may be sent to")
    team_recipients: CommaList = Field((), description="Who gets the recaps")
    authserv_ids: CommaList = Field(
        (), description="Names of our receiving servers in Authentication-Results; without one nothing is trusted"
    )

    # Scan and OCR
    clamd: str | None = Field(
        None, description="clamd: unix:/path/to/socket or tcp:host:port; absent: messages wait in received"
    )
    clamd_timeout_seconds: float = Field(30.0, gt=0, description="Time-out of one scan")
    clamd_stream_max_bytes: int = Field(
        26_214_400, gt=0, description="clamd's StreamMaxLength; larger is unscannable without asking"
    )
    tesseract: str = Field("tesseract", description="The tesseract program")
    scan_signatures_max_days: float = Field(
        7.0, gt=0, description="Older virus signatures are reported by `atlas doctor`"
    )
    scan_require_fresh: bool = Field(
        False, description="Hold mail while the signatures are older than that, or are none of ClamAV's own"
    )
    scan_attempts: int = Field(5, gt=0, description="Scans a day of bytes that the scanner fails on; then unscannable")
    ocr_languages: str | None = Field(
        None, description="Languages handed to tesseract -l, in place of the routing file's"
    )
    ocr_timeout_seconds: float | None = Field(
        None, gt=0, description="Time limit for one image or PDF, in place of the routing file's"
    )
    ocr_mail_seconds: float = Field(120.0, gt=0, description="Time limit for all images of one mail")
    ocr_at_once: int = Field(2, gt=0, le=16, description="Images read at once, one core each")
    ocr_max_images: int = Field(10, gt=0, description="Images and PDFs read in one mail")
    ocr_max_pages: int = Field(10, gt=0, description="Pages read of one PDF")
    ocr_max_pixels: int = Field(40_000_000, gt=0, description="Larger images are skipped with a code")

    # AI
    ai_routing: Path | None = Field(
        None, description="Routing file in place of Atlas's own (atlas_pipeline/ai/routing.yaml)"
    )
    mistral_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("MISTRAL_API_KEY"),
        description="Key of Mistral's API; without any key the local models serve",
    )
    mistral_url: str | None = Field(None, description="Base URL of Mistral's API, where it is another one")
    anthropic_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("ANTHROPIC_API_KEY"),
        description="Key of Anthropic's API",
    )
    anthropic_url: str | None = Field(None, description="Base URL of Anthropic's API, where it is another one")
    openai_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_API_KEY"),
        description="Key of OpenAI's API",
    )
    openai_url: str | None = Field(None, description="Base URL of OpenAI's API, where it is another one")
    voyage_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("VOYAGE_API_KEY"),
        description="Key of Voyage's API",
    )
    voyage_url: str | None = Field(None, description="Base URL of Voyage's API, where it is another one")
    learn: bool = Field(False, description="Show the model mails whose intent an operator corrected, as examples")
    team_signature: str = Field("L'équipe", description="Under the reply drafts")
    confidence_floor: float = Field(0.5, ge=0, le=1, description="Below it the intent is forced to noise")
    uncertainty_threshold: float = Field(0.7, ge=0, le=1, description="Below it classification_uncertain is audited")

    replay_share: float = Field(
        0.5, ge=0, le=1, description="Share of the day's AI budget that replays may use up; the rest is kept for mail"
    )

    # Agents
    mother_ship_url: str | None = Field(
        None, description="Where this house is a client's own: the agency's house, asked who writes for a prompt domain"
    )
    mother_ship_secret: SecretStr | None = Field(
        None, description="Shared secret of the two houses: it signs what is asked"
    )

    # Spawn
    spawn_enabled: bool = Field(True, description="Kill switch: 0 starts no agent; rows wait in classified")
    agent_bin: Path | None = Field(None, description="The Claude Code CLI; absent outside the demo: messages wait")
    agent_database_url: SecretStr | None = Field(
        None, description="Database as role atlas_agent, for what an agent's hooks note; empty: they have none"
    )
    agent_model: str = Field("sonnet", description="Model of the agent")
    spawn_timeout_seconds: int = Field(2400, gt=0, description="Time limit of one agent (40 minutes)")
    spawn_start_timeout_seconds: int = Field(120, gt=0, description="Time limit until an agent's first event")
    spawn_idle_timeout_seconds: int = Field(1200, gt=0, description="Longest silence of a running agent")
    spawn_max_per_cycle: int = Field(3, gt=0, description="Agents started by one cycle")
    spawn_max_live: int = Field(3, gt=0, description="Agents alive at once, queued runs counted")
    spawn_quiet_seconds: int = Field(
        3600, ge=0, description="No new spawn of a message within this time of the last spawn audit"
    )
    spawn_budget_euros: float = Field(5.0, gt=0, description="Euros that one start of an agent may cost")
    spawn_day_budget_euros: float = Field(
        60.0, gt=0, description="Euros a day for agents; when they are spent, messages wait for the next day"
    )
    draft_day_budget_euros: float = Field(
        15.0, gt=0, description="Of these, for drafts, which mail from anybody can cause"
    )
    euros_per_dollar: float = Field(1.0, gt=0, description="The agent's price list is in dollars")
    spawn_cron: str = Field("2-59/5 * * * *", description="When the spawn cycle runs")
    max_attempts: int = Field(3, ge=1, le=3, description="QA iterations of one chantier, 3 at most")
    max_tries: int = Field(3, gt=0, description="Starts of an agent within one attempt")

    # Release
    deploy_timeout_seconds: int = Field(900, gt=0, description="Time limit of the deploy command (15 minutes)")
    chromium: str = Field("chromium", description="The Chromium program")
    qa_timeout_seconds: float = Field(20.0, gt=0, description="Time limit for one route on one level")
    qa_first_byte_seconds: float = Field(5.0, gt=0, description="A page whose first byte takes longer fails its check")
    qa_page_bytes: int = Field(5_000_000, gt=0, description="A page whose document is larger fails its check")
    qa_ca_file: Path | None = Field(None, description="Certificate authority of pre-production sites, PEM")
    qa_logins: SecretStr | None = Field(
        None, description="HTTP auth of pre-production sites: client=user:password,…, the two percent-encoded"
    )

    # Recap
    smtp_url: SecretStr | None = Field(
        None, description="smtps://user:password@host:465 or smtp://…:587 (STARTTLS); plain text on loopback only"
    )
    smtp_ca_file: Path | None = Field(None, description="Certificate authority for the SMTP server, PEM")
    outbox_dir: Path | None = Field(
        None, description="Write recaps as .eml files into this folder in place of SMTP (demo)"
    )
    mail_from: str | None = Field(None, description="Sender address of recaps")

    # Cadence of the safety nets
    unfinished_seconds: int = Field(30, gt=0, description="Interval of the sensor that picks up what was left behind")
    claim_seconds: int = Field(900, ge=0, description="Lease of a message being worked on")

    @field_validator("founder_addresses", "team_domains", "team_recipients", "authserv_ids", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(item.strip().lower() for item in value.split(",") if item.strip())
        return value

    @field_validator("language")
    @classmethod
    def _known_language(cls, value: str) -> str:
        if value not in {"fr", "en"}:
            raise ValueError("language_unknown")
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("time_zone_unknown") from None
        return value

    @field_validator("spawn_cron")
    @classmethod
    def _cron(cls, value: str) -> str:
        """Five fields within their bounds: Dagster would find out late, in a log that nobody reads."""
        fields = value.split()
        if len(fields) != len(_CRON_BOUNDS) or not all(map(_is_cron_field, fields, _CRON_BOUNDS)):
            raise ValueError("cron_malformed")
        return value

    @field_validator("qa_logins")
    @classmethod
    def _logins(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _LOGINS.fullmatch(value.get_secret_value()):
            raise ValueError("logins_malformed")
        return value

    def qa_login(self, slug: str) -> str | None:
        """``user:password`` for a client's pre-production site, percent-encoded, or None where it has none here."""
        entries = self.qa_logins.get_secret_value().split(",") if self.qa_logins else []
        return next(
            (login for name, _, login in (entry.strip().partition("=") for entry in entries) if name == slug), None
        )

    @cached_property
    def home_dir(self) -> Path:
        """The state folder as an absolute path."""
        return self.home.resolve()

    @property
    def house_id(self) -> str:
        """Tells this house's processes from those of another on the same machine; the same after each restart."""
        return hashlib.sha256(str(self.home_dir).encode()).hexdigest()[:16]


def load() -> Settings:
    """Read the environment. Raises pydantic's ValidationError naming the variable, never its value."""
    return Settings()
