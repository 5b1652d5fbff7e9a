"""The components behind the stages, built from settings when first used. What isn't configured raises NotConfigured."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from atlas_pipeline.ai.intent_model import Corrected
from atlas_pipeline.ai.local import Local
from atlas_pipeline.ai.router import Router
from atlas_pipeline.embedded.resolve import database_urls
from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.flow import learning
from atlas_pipeline.flow.models import Models
from atlas_pipeline.mailbox.oauth import OAuthGrant
from atlas_pipeline.mailbox.source import MailSource, open_source
from atlas_pipeline.model import ParsedMail
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.mail import OcrResult, read_images
from atlas_pipeline.ocr.reader import Reader
from atlas_pipeline.recap.send import MailExit, open_exit
from atlas_pipeline.scan.client import ClamdClient
from atlas_pipeline.settings import Settings, load
from atlas_pipeline.store import audit
from atlas_pipeline.store.database import Database

log = logging.getLogger(__name__)


@dataclass
class Parts:
    """One set of components for one process. An empty ``database_url`` is none, for what needs no tables."""

    settings: Settings
    database_url: str

    @cached_property
    def db(self) -> Database:
        """Atlas's database."""
        return Database(self.database_url)

    def close(self) -> None:
        """Close what holds a connection."""
        if "models" in self.__dict__:
            self.models.close()
        if "db" in self.__dict__:
            self.db.close()

    def source(self) -> MailSource:
        """The mailbox, not connected yet. Raises NotConfigured (``mailbox_not_configured``, ``oauth_incomplete``, …)."""
        settings = self.settings
        return open_source(
            imap_url=settings.imap_url.get_secret_value() if settings.imap_url else None,
            imap_ca_file=settings.imap_ca_file,
            maildir=settings.maildir,
            timeout_seconds=settings.imap_timeout_seconds,
            imap_grant=self._imap_grant(),
        )

    def _imap_grant(self) -> OAuthGrant | None:
        settings = self.settings
        given = (settings.imap_oauth_token_url, settings.imap_oauth_client_id, settings.imap_oauth_refresh_token)
        if not any(given):
            return None
        url, client, refresh = given
        if not (url and client and refresh):
            raise NotConfigured("oauth_incomplete")
        secret = settings.imap_oauth_client_secret
        return OAuthGrant(
            token_url=url,
            client_id=client,
            refresh_token=refresh.get_secret_value(),
            client_secret=secret.get_secret_value() if secret else None,
            scope=settings.imap_oauth_scope,
        )

    @cached_property
    def scanner(self) -> ClamdClient:
        """clamd. Raises NotConfigured("scanner_not_configured"): without a scanner messages wait."""
        if not self.settings.clamd:
            raise NotConfigured("scanner_not_configured")
        return ClamdClient(
            self.settings.clamd,
            timeout_seconds=self.settings.clamd_timeout_seconds,
            stream_max_bytes=self.settings.clamd_stream_max_bytes,
        )

    @property
    def ocr(self) -> Reader:
        """What reads one picture or PDF."""
        settings = self.settings
        return Reader(self.ocr_engine, max_pixels=settings.ocr_max_pixels, max_pages=settings.ocr_max_pages)

    @property
    def ocr_engine(self) -> Tesseract:
        """The OCR engine of now; that its languages are there is asked once for each that the routing file names."""
        settings, routed = self.settings, self.models.routing().ocr
        languages = settings.ocr_languages or routed.languages
        seconds = settings.ocr_timeout_seconds or routed.timeout_seconds
        if (languages, seconds) not in self._engines:
            self._engines[languages, seconds] = Tesseract(settings.tesseract, languages, seconds)
        return self._engines[languages, seconds]

    @cached_property
    def _engines(self) -> dict[tuple[str, float], Tesseract]:
        return {}

    def read_pictures(self, mail: ParsedMail) -> OcrResult:
        """The text of a mail's pictures and PDFs, in memory only. Raises NotConfigured where no engine is there."""
        settings = self.settings
        return read_images(
            mail.parts,
            self.ocr,
            max_images=settings.ocr_max_images,
            mail_seconds=settings.ocr_mail_seconds,
            at_once=settings.ocr_at_once,
        )

    @cached_property
    def local(self) -> Local:
        """The models in this process, trained with the operators' corrections too."""
        return Local(lambda: self.corrections)

    @cached_property
    def corrections(self) -> list[Corrected]:
        """What operators corrected, as of the first use in this process."""
        return learning.corrections(self.db.transaction, self.local) if self.database_url else []

    @cached_property
    def models(self) -> Models:
        """The way to models: routing, router, gateway."""
        known = self.database_url != ""
        return Models(self.settings, self.db if known else None, self.local, self._routing_is_bad)

    def _routing_is_bad(self, error: NotConfigured) -> None:
        log.warning("the routing file changed and can't be used: %s", error)
        if self.database_url:
            with self.db.transaction() as conn:
                audit.alert(conn, error.code, error.code)

    @property
    def router(self) -> Router:
        """The AI router of now. Raises NotConfigured: the routing file, a URL or a key is no good."""
        return self.models.router()

    @property
    def agent_bin(self) -> Path:
        """The agent program. Raises NotConfigured: messages wait."""
        if self.settings.agent_bin is None:
            raise NotConfigured("agent_not_configured")
        if not self.settings.agent_bin.is_file():
            raise NotConfigured("agent_missing")
        return self.settings.agent_bin

    def mail_exit(self) -> MailExit:
        """The way out for recaps. Raises NotConfigured("mail_exit_not_configured")."""
        settings = self.settings
        return open_exit(
            smtp_url=settings.smtp_url.get_secret_value() if settings.smtp_url else None,
            smtp_ca_file=settings.smtp_ca_file,
            outbox_dir=settings.outbox_dir,
        )


@contextmanager
def opened(settings: Settings, database_url: str) -> Iterator[Parts]:
    """Parts for the length of a block."""
    parts = Parts(settings, database_url)
    try:
        yield parts
    finally:
        parts.close()


@contextmanager
def from_environment() -> Iterator[Parts]:
    """Parts as the environment describes them; starts the embedded database where none is configured."""
    settings = load()
    with opened(settings, database_urls(settings).atlas) as parts:
        yield parts
